// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/annex-dev/annex/pkg/aggregated/mainobjects"
)

// DeleteAll deletes the main cluster's copy of a resource, without running finalizers. The copy is
// open. progress is called with the number of objects deleted so far, by one goroutine at a time and in order.
func (c *Copy) DeleteAll(ctx context.Context, resource Resource, progress func(deleted int64)) error {
	var mu sync.Mutex
	var deleted int64
	for {
		left, err := c.Count(ctx, resource)
		if err != nil || left == 0 {
			return err
		}
		err = c.eachObject(ctx, resource.Opened(), func(ctx context.Context, object *metav1.PartialObjectMetadata) error {
			if err := c.deleteObject(ctx, resource, object); err != nil {
				return fmt.Errorf("delete %s %s/%s in the main cluster: %w", resource.Name, object.Namespace, object.Name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			deleted++
			progress(deleted)
			return nil
		})
		if err != nil {
			return err
		}
	}
}

// Count returns how many objects the main cluster's copy of a resource has. The copy is open.
func (c *Copy) Count(ctx context.Context, resource Resource) (int64, error) {
	return mainobjects.New(c.mainPages, resource.Opened()).Count(ctx)
}

// deleteObject deletes an object without running its finalizers, also one that changes meanwhile.
func (c *Copy) deleteObject(ctx context.Context, resource Resource, object *metav1.PartialObjectMetadata) error {
	objects := c.objects.Resource(resource.Opened()).Namespace(object.Namespace)
	whole := &unstructured.Unstructured{}
	whole.SetName(object.Name)
	whole.SetUID(object.UID)
	return c.pace.Do(ctx, func() (err error) {
		for attempt := range attempts {
			if len(object.Finalizers) > 0 || attempt > 0 {
				if whole, err = find(ctx, objects, object.Name); err != nil || whole == nil {
					return err
				}
			}
			if err = removeObject(ctx, objects, whole); !apierrors.IsConflict(err) {
				return err
			}
		}
		return err
	})
}
