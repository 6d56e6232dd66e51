// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/controller/framework"
)

// errFinalizerIgnored is returned if the main cluster accepts a write of the status, and
// ignores its finalizers.
var errFinalizerIgnored = errors.New("the main cluster ignores finalizers in writes of status")

// mainDefinitions writes the status of the main cluster's definitions, which includes
// finalizers, as apiextensions-apiserver does with its own. It needs no permission to
// write specs.
type mainDefinitions struct {
	client    apiextensionsclient.CustomResourceDefinitionInterface
	finalizer string
}

func (m mainDefinitions) addFinalizer(ctx context.Context, main *definition) error {
	held := main.DeepCopy()
	held.Finalizers = append(held.Finalizers, m.finalizer)
	written, err := m.write(ctx, held)
	if err == nil && written != nil && !slices.Contains(written.Finalizers, m.finalizer) {
		err = errFinalizerIgnored
	}
	return wrap(err, "set annex's finalizer on custom resource definition %s of the main cluster: %w", main.Name)
}

func (m mainDefinitions) removeFinalizer(ctx context.Context, main *definition) error {
	released := main.DeepCopy()
	released.Finalizers = slices.DeleteFunc(released.Finalizers, func(of string) bool { return of == m.finalizer })
	written, err := m.write(ctx, released)
	if written != nil {
		klog.FromContext(ctx).Info("Took annex's finalizer off a definition of the main cluster", "definition", main.Name)
	}
	return wrap(err, "take annex's finalizer off custom resource definition %s of the main cluster: %w", main.Name)
}

// updateStatus writes what a deletion waits for.
func (m mainDefinitions) updateStatus(ctx context.Context, explained *definition) error {
	_, err := m.write(ctx, explained)
	return wrap(err, "write the status of custom resource definition %s of the main cluster: %w", explained.Name)
}

// write returns nil for a definition that has changed or is gone: the change causes the
// next reconcile.
func (m mainDefinitions) write(ctx context.Context, wanted *definition) (*definition, error) {
	written, err := m.client.UpdateStatus(ctx, wanted, metav1.UpdateOptions{FieldManager: fieldManager})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return written, nil
}

// actInMain writes the main cluster's definitions, and deletes annex's definitions that
// follow deleted ones.
func (r *reconciler) actInMain(ctx context.Context, g *group, p *plan) []error {
	var errs []error
	for _, name := range p.addFinalizer {
		err := r.mainDefinitions.addFinalizer(ctx, g.main[name])
		if apierrors.IsForbidden(err) || errors.Is(err, errFinalizerIgnored) {
			p.statuses[name] = finalizerForbidden(err)
			continue
		}
		errs = append(errs, err)
	}
	for _, explained := range p.updateStatus {
		errs = append(errs, r.mainDefinitions.updateStatus(ctx, explained))
	}
	for _, name := range p.delete {
		if !slices.ContainsFunc(p.updateStatus, func(explained *definition) bool { return explained.Name == name }) {
			errs = append(errs, r.delete(ctx, g.main[name], g.annex[name]))
		}
	}
	if p.unfreeze {
		// Annex may not have the right: nothing froze groups that earlier versions took over.
		if err := r.unfreeze(ctx, g.name); err != nil && !apierrors.IsForbidden(err) {
			return append(errs, err) // the finalizers wait for it
		}
	}
	for _, name := range p.removeFinalizer {
		errs = append(errs, r.release(ctx, g, name))
	}
	return errs
}

// delete deletes a definition of annex with its objects. It reads the main cluster's from
// the API first: its label or deletion policy may have changed.
func (r *reconciler) delete(ctx context.Context, main, annex *definition) error {
	live, err := framework.IgnoreNotFound(r.mainDefinitions.client.Get(ctx, main.Name, metav1.GetOptions{}))
	if err != nil {
		return fmt.Errorf("check that custom resource definition %s of the main cluster is being deleted: %w", main.Name, err)
	}
	if live == nil || live.UID != main.UID || live.ResourceVersion != main.ResourceVersion {
		return nil
	}
	klog.FromContext(ctx).Info("Deleting a definition and its objects, because it was deleted in the main cluster", "definition", main.Name)
	err = r.annexDefinitions.Delete(ctx, annex.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(annex.UID)}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return wrap(err, "delete custom resource definition %s in annex: %w", annex.Name)
}

// release removes the finalizer. If the cache has no definition of annex for one that is
// being deleted, it reads from annex's API: the cache may lag.
func (r *reconciler) release(ctx context.Context, g *group, name string) error {
	main := g.main[name]
	if isTerminating(main) && g.annex[name] == nil {
		current, err := framework.IgnoreNotFound(r.annexDefinitions.Get(ctx, name, metav1.GetOptions{}))
		if err != nil {
			return fmt.Errorf("check that custom resource definition %s is gone: %w", name, err)
		}
		if current != nil {
			return nil
		}
	}
	return r.mainDefinitions.removeFinalizer(ctx, main)
}

// probeName is a name that no object should have.
const probeName = "annex-is-this-served"

// annexObjects reads annex's own objects.
type annexObjects struct {
	client metadata.Interface
}

// remaining describes the objects that the deletion of annex's definitions waits for.
func (a annexObjects) remaining(ctx context.Context, g *group) map[string]string {
	remaining := map[string]string{}
	for _, name := range g.terminating() {
		if current := g.annex[name]; current != nil && isTerminating(current) {
			remaining[name] = a.describe(ctx, current)
		}
	}
	return remaining
}

// describe counts the objects of a definition and names one.
func (a annexObjects) describe(ctx context.Context, crd *definition) string {
	versions := servedVersions(crd)
	if len(versions) == 0 {
		return "it serves no version, so that they cannot be counted"
	}
	list, err := a.client.Resource(versions[0]).List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case err != nil:
		return fmt.Sprintf("what is left cannot be listed: %v", err)
	case len(list.Items) == 0:
		return "none is left"
	}
	first := &list.Items[0]
	text := fmt.Sprintf("%d left, among them %q", ptr.Deref(list.RemainingItemCount, 0)+1, cache.MetaObjectToName(first))
	if len(first.Finalizers) > 0 {
		text += ", which has the finalizers " + strings.Join(first.Finalizers, ", ")
	}
	return text
}

// checkServed fails unless annex serves every version of a definition. The first request
// also fills annex's watch caches, before clients of the main cluster reach them.
func (a annexObjects) checkServed(ctx context.Context, crd *definition) error {
	for _, resource := range servedVersions(crd) {
		var objects metadata.ResourceInterface = a.client.Resource(resource)
		if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
			objects = a.client.Resource(resource).Namespace(metav1.NamespaceDefault)
		}
		_, err := objects.Get(ctx, probeName, metav1.GetOptions{})
		if err != nil && !isAbsent(err) {
			return fmt.Errorf("see whether annex serves %s in version %s: %w", crd.Name, resource.Version, err)
		}
	}
	return nil
}

// isAbsent distinguishes a missing object from a path that is not served.
func isAbsent(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name == probeName
}

func servedVersions(crd *definition) []schema.GroupVersionResource {
	var served []schema.GroupVersionResource
	for _, version := range crd.Spec.Versions {
		if version.Served {
			served = append(served, schema.GroupVersionResource{Group: crd.Spec.Group, Version: version.Name, Resource: crd.Spec.Names.Plural})
		}
	}
	return served
}
