// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/csaupgrade"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/staticobjects"
)

// fieldManager owns the fields of static objects in their mirrors. Other fields, such as the
// store of a HostedResource, are not changed.
const fieldManager = "annex-static-objects"

func (c *Controller) client(t target, key staticobjects.Key) dynamic.ResourceInterface {
	return c.config.AnnexObjects.Resource(t.GroupVersionResource).Namespace(key.Namespace)
}

// write creates, changes or deletes a mirror.
func (c *Controller) write(ctx context.Context, key staticobjects.Key, t target, live *unstructured.Unstructured, d staticobjects.Decision) error {
	client := c.client(t, key)
	source, written := d.Mirror.Source, live
	var err error
	switch d.Action {
	case staticobjects.Create:
		written, err = client.Create(ctx, c.mirror(d.Object, nil), metav1.CreateOptions{FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict})
	case staticobjects.Update:
		written, err = apply(ctx, client, live, c.mirror(d.Object, live))
	case staticobjects.Delete:
		err = client.Delete(ctx, key.Name, metav1.DeleteOptions{
			Preconditions:     &metav1.Preconditions{UID: new(live.GetUID()), ResourceVersion: new(live.GetResourceVersion())},
			PropagationPolicy: new(metav1.DeletePropagationBackground),
		})
		if apierrors.IsNotFound(err) {
			err = nil
		}
	case staticobjects.Orphan:
		written, err = markOrphaned(ctx, client, live, d.Message)
	}
	if err != nil {
		return err
	}
	switch {
	case d.Object != nil:
		source = d.Object.Source
		c.remember(key, written)
		c.setApplied(key, d.Object)
	case d.Action == staticobjects.Orphan:
		c.remember(key, written)
		c.setState(key, state{phase: orphaned, source: source, reason: reasonOrphaned, message: d.Message})
	default:
		c.setState(key, state{})
	}
	c.states.wrote(source, string(d.Action))
	return nil
}

// mirror returns the mirror of a static object. live is nil for a new one.
func (c *Controller) mirror(object *staticobjects.Object, live *unstructured.Unstructured) *unstructured.Unstructured {
	mirror := object.Content.DeepCopy()
	seen := c.now().UTC().Format(time.RFC3339)
	if live != nil {
		mirror.SetUID(live.GetUID())
		mirror.SetResourceVersion(live.GetResourceVersion())
		if before := live.GetAnnotations()[hostingv1alpha1.StaticSeenAnnotation]; before != "" {
			seen = before
		}
	}
	annotations := map[string]string{
		hostingv1alpha1.StaticSourceAnnotation: object.Source,
		hostingv1alpha1.StaticHashAnnotation:   object.Hash,
		hostingv1alpha1.StaticSeenAnnotation:   seen,
		hostingv1alpha1.StaticMirrorAnnotation: string(object.UID),
	}
	maps.Copy(annotations, mirror.GetAnnotations())
	mirror.SetAnnotations(annotations)
	labels := map[string]string{hostingv1alpha1.StaticSourceAnnotation: object.Source}
	maps.Copy(labels, mirror.GetLabels())
	mirror.SetLabels(labels)
	return mirror
}

// apply changes a mirror to what its static object has, with the UID and the resource version of
// the live object. Fields that the static object no longer has are removed: for that, what the
// create wrote has to count as applied.
func apply(ctx context.Context, client dynamic.ResourceInterface, live, mirror *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if live.GetAnnotations()[hostingv1alpha1.StaticOrphanedAnnotation] != "" {
		// It may have been set through another version, whose fields the upgrade discards.
		adopted, err := markOrphaned(ctx, client, live, nil)
		if err != nil {
			return nil, fmt.Errorf("remove the annotation %s: %w", hostingv1alpha1.StaticOrphanedAnnotation, err)
		}
		live = adopted
		mirror.SetResourceVersion(live.GetResourceVersion())
	}
	upgrade, err := csaupgrade.UpgradeManagedFieldsPatch(live, sets.New(fieldManager), fieldManager)
	if err != nil {
		return nil, fmt.Errorf("read the managed fields: %w", err)
	}
	if upgrade != nil {
		upgraded, err := client.Patch(ctx, live.GetName(), types.JSONPatchType, upgrade, metav1.PatchOptions{FieldManager: fieldManager})
		if err != nil {
			return nil, fmt.Errorf("write the managed fields: %w", err)
		}
		mirror.SetResourceVersion(upgraded.GetResourceVersion())
	}
	encoded, err := json.Marshal(mirror)
	if err != nil {
		return nil, fmt.Errorf("encode the mirror: %w", err)
	}
	return client.Patch(ctx, mirror.GetName(), types.ApplyPatchType, encoded, metav1.PatchOptions{
		FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict, Force: new(true),
	})
}

// markOrphaned makes a mirror an object that users may change and delete, or with nil reverts that.
func markOrphaned(ctx context.Context, client dynamic.ResourceInterface, live *unstructured.Unstructured, why any) (*unstructured.Unstructured, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": live.GetUID(), "resourceVersion": live.GetResourceVersion(),
		"annotations": map[string]any{hostingv1alpha1.StaticOrphanedAnnotation: why},
	}})
	if err != nil {
		return nil, fmt.Errorf("encode the annotation: %w", err)
	}
	return client.Patch(ctx, live.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
}
