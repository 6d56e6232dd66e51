// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
)

// staleTimeout is longer than a kube-apiserver takes to notice that a policy has changed.
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
// group. copyPolicy would deny that. It stays in force, but exempts the objects of one page after another. Rules
// do not distinguish namespaces: until the objects of the page are deleted, other users can change and delete
// objects of the same resource and names in namespaces that exist, if RBAC allows it. A Rollback undoes that; a Move
// that reads the copy may take it for a late write.
func (c *Copy) removeStale(ctx context.Context, group string, resources []Resource) error {
	missing, err := c.missingNamespaces(ctx, resources)
	if err != nil || len(missing) == 0 {
		return err
	}
	user, err := c.userName(ctx)
	if err != nil {
		return err
	}
	whole := copyPolicy(group, user)
	for _, of := range resources {
		err := c.eachPage(ctx, of.Opened(), func(page []metav1.PartialObjectMetadata) error {
			stale := slices.DeleteFunc(page, func(object metav1.PartialObjectMetadata) bool { return !missing.Has(object.Namespace) })
			return c.deletePage(ctx, whole, of, stale)
		})
		if err != nil {
			// The next attempt waits until it is in force.
			restoring, cancel := context.WithTimeout(context.WithoutCancel(ctx), staleTimeout)
			defer cancel()
			return errors.Join(err, c.apply(restoring, whole))
		}
	}
	return c.enforce(ctx, group, copyPolicy)
}

// deletePage deletes stale objects, while a policy exempts them.
func (c *Copy) deletePage(ctx context.Context, whole policy, of Resource, stale []metav1.PartialObjectMetadata) error {
	if len(stale) == 0 {
		return nil
	}
	names := sets.New[string]()
	for i := range stale {
		names.Insert(stale[i].Name)
	}
	if err := c.apply(ctx, whole.exempting(of, names)); err != nil {
		return err
	}
	deleting, ctx := errgroup.WithContext(ctx)
	deleting.SetLimit(Workers)
	for i := range stale {
		deleting.Go(func() error { return c.deleteStale(ctx, of, &stale[i]) })
	}
	return deleting.Wait()
}

// missingNamespaces returns the namespaces that objects are in, but that do not exist. It lists the objects
// first: a namespace may be created meanwhile.
func (c *Copy) missingNamespaces(ctx context.Context, resources []Resource) (sets.Set[string], error) {
	missing := sets.New[string]()
	for _, of := range resources {
		if !of.Namespaced {
			continue
		}
		err := c.readAll(ctx, of.Opened(), func(object *metav1.PartialObjectMetadata) { missing.Insert(object.Namespace) })
		if err != nil {
			return nil, err
		}
	}
	namespaces := corev1.SchemeGroupVersion.WithResource("namespaces")
	err := c.readAll(ctx, namespaces, func(object *metav1.PartialObjectMetadata) { missing.Delete(object.Name) })
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
