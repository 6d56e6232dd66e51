// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/internal/output"
	"github.com/annex-dev/annex/pkg/storage/backup"
)

type restorer struct {
	annex   *client
	archive *archive
	wanted  []*saved
	// stores has the target Store of each resource.
	stores map[string]string
	errOut io.Writer
	// restored counts the readable objects of each resource.
	restored map[string]int64
	// unreadable are the skipped objects.
	unreadable unreadable
}

// admit chooses the target Store of a resource, and checks that its definition does not
// exist.
func (r *restorer) admit(ctx context.Context, resource *saved, store string) error {
	definition, err := r.annex.definition(ctx, resource.name)
	if err != nil {
		return err
	}
	if definition != nil {
		return fmt.Errorf("customresourcedefinition %s exists: a backup is not merged with a resource that is served", resource.name)
	}
	hosted, err := r.waitSettled(ctx, resource.name)
	if err != nil {
		return err
	}
	placed := ""
	if hosted != nil {
		if placed = hosted.Spec.StoreName; placed == "" {
			return fmt.Errorf("hostedresource %s exists and has no Store: delete it, or set its spec.storeName", resource.name)
		}
	}
	switch {
	case store != "" && placed != "" && store != placed:
		return fmt.Errorf("--store %s: hostedresource %s exists and names Store %s: delete it, or restore to that one", store, resource.name, placed)
	case store != "":
	case placed != "":
		store = placed
	case resource.hosted != nil && resource.hosted.Spec.StoreName != "":
		store = resource.hosted.Spec.StoreName
	default:
		store = r.archive.header.Store
	}
	r.stores[resource.name] = store
	return nil
}

// waitSettled returns the HostedResource, or nil. It waits until an automanaged one,
// whose definition is gone, is deleted.
func (r *restorer) waitSettled(ctx context.Context, name string) (*hostingv1alpha1.HostedResource, error) {
	var found *hostingv1alpha1.HostedResource
	err := wait.PollUntilContextTimeout(ctx, pollInterval, settledTimeout, true, func(ctx context.Context) (bool, error) {
		var err error
		found, err = r.annex.hosted(ctx, name)
		return found == nil || found.Labels[hostingv1alpha1.AutomanagedLabel] != "true", err
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return nil, fmt.Errorf("hostedresource %s still exists, though its definition is gone: is annex's leader running?", name)
	}
	return found, err
}

func (r *restorer) check(ctx context.Context, skipUnreadable bool) error {
	results, err := r.send(ctx, "Checking", backup.Options{Check: true, SkipUnreadable: skipUnreadable})
	if err != nil {
		return err
	}
	r.restored = map[string]int64{}
	for _, resource := range r.wanted {
		result, store := results[resource.name], r.stores[resource.name]
		if result.Objects == 0 && len(result.Unreadable) > 0 {
			return fmt.Errorf("none of the %d objects of %s can be read: is their encryption key missing?", len(result.Unreadable), resource.name)
		}
		if others := result.Present - result.Found; others > 0 {
			return fmt.Errorf("store %s has objects of %s that are not in the backup (%d)", store, resource.name, others)
		}
		r.restored[resource.name] = result.Objects
		r.unreadable.add(result.Unreadable...)
	}
	return nil
}

func (r *restorer) send(ctx context.Context, doing string, options backup.Options) (map[string]backup.Result, error) {
	var total int64
	for _, resource := range r.wanted {
		total += resource.objects
	}
	bar := output.NewBar(r.errOut, doing)
	defer bar.End()
	var sent, size int64
	results := map[string]backup.Result{}
	err := r.archive.parts(r.wanted, func(resource *saved, part []byte, count, bytes int64) error {
		got, err := r.annex.writePart(ctx, r.stores[resource.name], resource.name, part, options)
		if err != nil {
			return fmt.Errorf("restore %s to Store %s: %w%s", resource.name, r.stores[resource.name], err, advice(err))
		}
		sum := results[resource.name]
		sum.Objects, sum.Found, sum.Present = sum.Objects+got.Objects, sum.Found+got.Found, got.Present
		sum.Unreadable = append(sum.Unreadable, got.Unreadable...)
		results[resource.name] = sum
		sent, size = sent+count, size+bytes
		bar.Show(sent, total, size)
		return nil
	})
	return results, err
}

// advice names the flag that helps with an error.
func advice(err error) string {
	switch {
	case apierrors.IsNotFound(err):
		return "; choose another with --store"
	case apierrors.IsInvalid(err):
		return "; --skip-unreadable skips it"
	}
	return ""
}

const (
	// servedTimeout bounds the wait until a resource is served.
	servedTimeout = time.Minute
	// settledTimeout bounds the wait until a deleted HostedResource is gone.
	settledTimeout = 30 * time.Second
	pollInterval   = 50 * time.Millisecond
)

// publish creates the HostedResource and then the definition, which without a
// HostedResource would be placed on any Store.
func (r *restorer) publish(ctx context.Context, resource *saved) error {
	automanaged, err := r.place(ctx, resource)
	if err != nil {
		return err
	}
	body, err := fresh(resource.definition).MarshalJSON()
	if err != nil {
		return fmt.Errorf("encode its customresourcedefinition: %w", err)
	}
	if err := r.annex.rest.Post().AbsPath(definitionsPath).Body(body).Do(ctx).Error(); err != nil {
		return fmt.Errorf("make its customresourcedefinition: %w", err)
	}
	if err := r.waitServed(ctx, resource); err != nil {
		return err
	}
	if err := r.keepStoredVersions(ctx, resource); err != nil {
		return err
	}
	if !automanaged {
		return nil
	}
	label, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{hostingv1alpha1.AutomanagedLabel: "true"}}})
	if err != nil {
		return fmt.Errorf("label its hostedresource: %w", err)
	}
	if _, err := r.annex.hosting.HostedResources().Patch(ctx, resource.name, types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("label its hostedresource: %w", err)
	}
	return nil
}

// place creates the HostedResource if there is none. It reports whether the caller has to
// label it as automanaged once its definition exists: without one, it would be deleted.
func (r *restorer) place(ctx context.Context, resource *saved) (automanaged bool, err error) {
	found, err := r.annex.hosted(ctx, resource.name)
	if err != nil || found != nil {
		return false, err
	}
	hosted := &hostingv1alpha1.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: resource.name}}
	if was := resource.hosted; was != nil {
		hosted.Spec = *was.Spec.DeepCopy()
		hosted.Labels, hosted.Annotations = maps.Clone(was.Labels), maps.Clone(was.Annotations)
		automanaged = hosted.Labels[hostingv1alpha1.AutomanagedLabel] == "true"
		delete(hosted.Labels, hostingv1alpha1.AutomanagedLabel)
		delete(hosted.Annotations, hostingv1alpha1.DefinitionFromAnnotation)
		delete(hosted.Annotations, corev1.LastAppliedConfigAnnotation)
	}
	hosted.Spec.StoreName = r.stores[resource.name]
	if _, err := r.annex.hosting.HostedResources().Create(ctx, hosted, metav1.CreateOptions{}); err != nil {
		return false, fmt.Errorf("make its hostedresource: %w", err)
	}
	return automanaged, nil
}

// fresh returns the definition without status and server-set metadata.
func fresh(definition *unstructured.Unstructured) *unstructured.Unstructured {
	fresh := definition.DeepCopy()
	unstructured.RemoveNestedField(fresh.Object, "status")
	annotations := fresh.GetAnnotations()
	delete(annotations, hostingv1alpha1.DefinitionFromAnnotation)
	delete(annotations, hostingv1alpha1.DefinitionUIDAnnotation)
	fresh.Object["metadata"] = map[string]any{}
	fresh.SetName(definition.GetName())
	fresh.SetLabels(definition.GetLabels())
	if len(annotations) > 0 {
		fresh.SetAnnotations(annotations)
	}
	return fresh
}

// waitServed returns when the objects can be read.
func (r *restorer) waitServed(ctx context.Context, resource *saved) error {
	crd := resource.crd
	served := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Served })
	if served < 0 {
		return nil
	}
	last := errors.New("nothing was tried")
	err := wait.PollUntilContextTimeout(ctx, pollInterval, servedTimeout, true, func(ctx context.Context) (bool, error) {
		last = r.annex.rest.Get().AbsPath("/apis", crd.Spec.Group, crd.Spec.Versions[served].Name, crd.Spec.Names.Plural).
			Param("limit", "1").Do(ctx).Error()
		// The user may have the right to restore without that to list.
		return last == nil || apierrors.IsForbidden(last), nil
	})
	if err != nil {
		return fmt.Errorf("wait until it is served: %w", last)
	}
	return nil
}

// keepStoredVersions adds the versions of the backup to status.storedVersions, which in a
// new definition has only the current storage version.
func (r *restorer) keepStoredVersions(ctx context.Context, resource *saved) error {
	err := r.annex.again(ctx, func() error {
		current, err := r.annex.definition(ctx, resource.name)
		if err != nil {
			return err
		}
		var definition unstructured.Unstructured
		if err := definition.UnmarshalJSON(current); err != nil {
			return err
		}
		versions, _, err := unstructured.NestedStringSlice(definition.Object, "status", "storedVersions")
		if err != nil {
			return err
		}
		all := slices.Clone(versions)
		for _, version := range resource.crd.Status.StoredVersions {
			if !slices.Contains(all, version) {
				all = append(all, version)
			}
		}
		if len(all) == len(versions) {
			return nil
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"resourceVersion": definition.GetResourceVersion()},
			"status":   map[string]any{"storedVersions": all},
		})
		if err != nil {
			return err
		}
		err = r.annex.rest.Patch(types.MergePatchType).AbsPath(definitionsPath, resource.name, "status").Body(patch).Do(ctx).Error()
		if apierrors.IsConflict(err) {
			return fmt.Errorf("changed meanwhile: %s", err.Error()) // retried, because it is no Status
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("add the stored versions: %w", err)
	}
	return nil
}
