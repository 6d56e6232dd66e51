// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/util/retry"

	"github.com/annex-dev/annex/pkg/storage/move"
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

// AddDeleted adds pairs for the objects of annex that clients deleted in the main cluster since it serves
// the resource again. Their annotations are gone, and the garbage collector may not know that their
// dependants have no owner: its informers see an object with another UID, and neither a deletion nor
// the object that was deleted. A UID that nothing has makes it look for the owner. annex is frozen.
func (c *Copy) AddDeleted(ctx context.Context, resource Resource, annex move.Source, pairs *Pairs) error {
	version, err := c.reachable(ctx, resource)
	if err != nil {
		return err
	}
	known := pairs.All()
	err = c.eachPage(ctx, version, func(page []metav1.PartialObjectMetadata) {
		for i := range page {
			known[page[i].UID] = page[i].UID
		}
	})
	if err != nil {
		return err
	}
	return eachUID(ctx, annex, func(uid types.UID) {
		if _, found := known[uid]; !found {
			pairs.add(uid, uuid.NewUUID())
		}
	})
}

// eachUID calls a function with the UIDs of all objects in annex.
func eachUID(ctx context.Context, annex move.Source, add func(types.UID)) error {
	revision, err := annex.Revision(ctx)
	if err != nil {
		return fmt.Errorf("read annex: %w", err)
	}
	for after, more := "", true; more; {
		var page []move.Object
		if page, more, err = annex.Page(ctx, after, pageSize, revision); err != nil {
			return fmt.Errorf("read annex: %w", err)
		}
		for _, stored := range page {
			after = stored.Key
			value, err := annex.Decode(ctx, stored)
			var object metav1.PartialObjectMetadata
			if err == nil {
				err = json.Unmarshal(value, &object)
			}
			if err != nil {
				return fmt.Errorf("read %s in annex: %w", stored.Key, err)
			}
			add(object.UID)
		}
	}
	return nil
}

// reachable returns the version through which requests reach the main cluster's objects.
func (c *Copy) reachable(ctx context.Context, resource Resource) (schema.GroupVersionResource, error) {
	definition, err := c.definitions.Get(ctx, resource.Name, metav1.GetOptions{})
	if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("read definition %s of the main cluster: %w", resource.Name, err)
	}
	if isOpen(definition) {
		return resource.open(), nil
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
