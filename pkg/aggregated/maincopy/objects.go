// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// DeleteAll deletes the main cluster's copy of a resource, without running finalizers. The copy is
// open. progress is called with the number of objects deleted so far, by one goroutine at a time and in order.
func (c *Copy) DeleteAll(ctx context.Context, resource Resource, progress func(deleted int64)) error {
	var mu sync.Mutex
	var deleted int64
	for {
		left, err := c.Opened(resource).Count(ctx)
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

// eachObject calls visit for the metadata of all objects of a resource in the main cluster, in parallel.
func (c *Copy) eachObject(ctx context.Context, resource schema.GroupVersionResource, visit func(context.Context, *metav1.PartialObjectMetadata) error) error {
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(Workers)
	err := c.readAll(running, resource, func(object *metav1.PartialObjectMetadata) {
		group.Go(func() error { return visit(running, object) })
	})
	if waitErr := group.Wait(); waitErr != nil {
		return waitErr // it ended the pages, too
	}
	return err
}

// readAll calls visit for the metadata of all objects of a resource in the main cluster, one after the other.
func (c *Copy) readAll(ctx context.Context, resource schema.GroupVersionResource, visit func(*metav1.PartialObjectMetadata)) error {
	return c.eachPage(ctx, resource, func(page []metav1.PartialObjectMetadata) error {
		for i := range page {
			visit(&page[i])
		}
		return nil
	})
}

const pageSize = 500

func (c *Copy) eachPage(ctx context.Context, resource schema.GroupVersionResource, visit func([]metav1.PartialObjectMetadata) error) error {
	for options := (metav1.ListOptions{Limit: pageSize}); ; {
		page, err := c.metadata.Resource(resource).List(ctx, options)
		var status apierrors.APIStatus
		if apierrors.IsResourceExpired(err) && errors.As(err, &status) && status.Status().Continue != "" {
			options.Continue = status.Status().Continue // at the present revision
			continue
		}
		if err != nil {
			return fmt.Errorf("list %s in the main cluster: %w", resource.GroupResource(), err)
		}
		if err := visit(page.Items); err != nil {
			return err
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}
