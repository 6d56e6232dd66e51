// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
)

// staleTimeout is longer than a kube-apiserver takes to notice that a policy is gone.
const staleTimeout = 10 * time.Second

// errStale is an object that cannot be deleted while copyPolicy is in force.
var errStale = errors.New("delete an object whose namespace is gone")

// isStale reports whether admission refused a request because its namespace does not exist.
func isStale(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == "namespaces"
}

// removeStale deletes objects whose namespaces do not exist: the namespaces were deleted while annex served the
// group. If there are any, it removes copyPolicy, which denies their deletion, and reports that.
func (c *Copy) removeStale(ctx context.Context, group string, resources []Resource) (bool, error) {
	namespaces := sets.New[string]()
	err := c.eachPage(ctx, corev1.SchemeGroupVersion.WithResource("namespaces"), func(page []metav1.PartialObjectMetadata) {
		for i := range page {
			namespaces.Insert(page[i].Name)
		}
	})
	if err != nil {
		return false, err
	}
	var found atomic.Bool
	unreserve := sync.OnceValue(func() error {
		found.Store(true)
		return c.remove(ctx, copyPolicy(group, ""))
	})
	for _, of := range resources {
		if !of.Namespaced {
			continue
		}
		err := c.eachObject(ctx, of.Opened(), func(ctx context.Context, object *metav1.PartialObjectMetadata) error {
			if namespaces.Has(object.Namespace) {
				return nil
			}
			// It may have been created since the list.
			_, err := c.kube.CoreV1().Namespaces().Get(ctx, object.Namespace, metav1.GetOptions{})
			if err == nil {
				return nil
			}
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("read namespace %s of the main cluster: %w", object.Namespace, err)
			}
			if err := unreserve(); err != nil {
				return err
			}
			return c.deleteStale(ctx, of, object)
		})
		if err != nil {
			return found.Load(), err
		}
	}
	return found.Load(), nil
}

func (c *Copy) deleteStale(ctx context.Context, of Resource, object *metav1.PartialObjectMetadata) error {
	var stale error
	err := wait.PollUntilContextTimeout(ctx, probeInterval, staleTimeout, true, func(ctx context.Context) (bool, error) {
		err := c.deleteObject(ctx, of, object)
		if isStale(err) {
			stale = err
			return false, nil
		}
		return err == nil, err
	})
	if stale != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = stale
		if len(object.Finalizers) > 0 {
			err = fmt.Errorf("%w: it has finalizers, which kube-apiserver before 1.37 does not let annex remove there. Create the namespace, and delete it afterwards", err)
		}
	}
	if err != nil {
		return fmt.Errorf("delete %s %s/%s of the main cluster's copy, whose namespace is gone: %w", of.Name, object.Namespace, object.Name, err)
	}
	return nil
}
