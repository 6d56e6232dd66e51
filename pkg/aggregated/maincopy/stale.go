// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"fmt"
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

// isNamespaceMissing reports whether admission refused a request because its namespace does not exist.
func isNamespaceMissing(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == "namespaces"
}

// removeStale deletes objects whose namespaces do not exist: the namespaces were deleted while annex served the
// group. If there are any, copyPolicy, which denies their deletion, is not in force meanwhile.
func (c *Copy) removeStale(ctx context.Context, group string, resources []Resource) error {
	missing, err := c.missingNamespaces(ctx, resources)
	if err != nil || len(missing) == 0 {
		return err
	}
	if err := c.remove(ctx, copyPolicy(group, "")); err != nil {
		return err
	}
	for _, of := range resources {
		err := c.eachObject(ctx, of.Opened(), func(ctx context.Context, object *metav1.PartialObjectMetadata) error {
			if !missing.Has(object.Namespace) {
				return nil
			}
			return c.deleteStale(ctx, of, object)
		})
		if err != nil {
			return err
		}
	}
	return c.reserve(ctx, group)
}

// missingNamespaces returns the namespaces that objects are in, but that do not exist. It lists the objects
// first: a namespace may be created meanwhile.
func (c *Copy) missingNamespaces(ctx context.Context, resources []Resource) (sets.Set[string], error) {
	missing := sets.New[string]()
	for _, of := range resources {
		if !of.Namespaced {
			continue
		}
		err := c.eachPage(ctx, of.Opened(), func(page []metav1.PartialObjectMetadata) {
			for i := range page {
				missing.Insert(page[i].Namespace)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	err := c.eachPage(ctx, corev1.SchemeGroupVersion.WithResource("namespaces"), func(page []metav1.PartialObjectMetadata) {
		for i := range page {
			missing.Delete(page[i].Name)
		}
	})
	return missing, err
}

func (c *Copy) deleteStale(ctx context.Context, of Resource, object *metav1.PartialObjectMetadata) error {
	var refused error
	err := wait.PollUntilContextTimeout(ctx, probeInterval, staleTimeout, true, func(ctx context.Context) (bool, error) {
		err := c.deleteObject(ctx, of, object)
		if isNamespaceMissing(err) {
			refused = err
			return false, nil
		}
		return err == nil, err
	})
	if refused != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = refused
		if len(object.Finalizers) > 0 {
			err = fmt.Errorf("%w: it has finalizers, which kube-apiserver before 1.37 does not let annex remove there. Create the namespace, and delete it afterwards", err)
		}
	}
	if err != nil {
		return fmt.Errorf("delete %s %s/%s of the main cluster's copy, whose namespace is gone: %w", of.Name, object.Namespace, object.Name, err)
	}
	return nil
}
