// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// LoadPairs reads the pairs of a resource from the annotations in the main cluster. The copy is
// open, or the main cluster serves the resource itself again.
func (c *Copy) LoadPairs(ctx context.Context, resource Resource, pairs *Pairs) error {
	version, err := c.reachable(ctx, resource)
	if err != nil {
		return err
	}
	return c.eachObject(ctx, version, func(_ context.Context, object *metav1.PartialObjectMetadata) error {
		if uid := object.Annotations[UIDAnnotation]; uid != "" {
			pairs.add(types.UID(uid), object.UID)
		}
		return nil
	})
}

// reachable returns the version through which requests reach the main cluster's objects.
func (c *Copy) reachable(ctx context.Context, resource Resource) (schema.GroupVersionResource, error) {
	definition, err := c.definitions.Get(ctx, resource.Name, metav1.GetOptions{})
	if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("read definition %s of the main cluster: %w", resource.Name, err)
	}
	if isOpen(definition) {
		return resource.Opened(), nil
	}
	return resource.Stored, c.checkLocal(ctx, resource.Stored.Version, resource.Stored.Group)
}

// RemoveMarks removes the annotations with UIDs of annex from the objects of a resource, after
// RewriteOwners. The main cluster serves the resource itself again.
func (c *Copy) RemoveMarks(ctx context.Context, resource Resource) error {
	if err := c.checkLocal(ctx, resource.Stored.Version, resource.Stored.Group); err != nil {
		return err
	}
	return c.eachObject(ctx, resource.Stored, func(ctx context.Context, object *metav1.PartialObjectMetadata) error {
		return c.removeMark(ctx, resource, object)
	})
}

func (c *Copy) removeMark(ctx context.Context, resource Resource, object *metav1.PartialObjectMetadata) error {
	objects := c.metadata.Resource(resource.Stored).Namespace(object.Namespace)
	err := retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
		if object.Annotations[UIDAnnotation] == "" {
			return nil
		}
		err := patchMetadata(ctx, objects, object, map[string]any{"annotations": map[string]any{UIDAnnotation: nil}})
		if !apierrors.IsConflict(err) {
			return ignoreMissing(err)
		}
		current, getErr := objects.Get(ctx, object.Name, metav1.GetOptions{})
		if getErr != nil {
			return ignoreMissing(getErr)
		}
		object = current
		return err
	})
	if err != nil {
		return fmt.Errorf("remove annotation %s of %s %s/%s in the main cluster: %w", UIDAnnotation, resource.Name, object.Namespace, object.Name, err)
	}
	return nil
}
