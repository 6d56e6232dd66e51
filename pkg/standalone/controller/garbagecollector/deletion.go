// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/standalone/controller/metadatainformers"
)

// orphansAtOnce bounds the concurrent writes of dependents of one owner.
const orphansAtOnce = 8

// awaitDependents deletes the dependents of an object in foreground deletion, and removes
// its finalizer when no blocking one is left.
func (c *collector) awaitDependents(ctx context.Context, of item, live *metav1.PartialObjectMetadata) (framework.Result, error) {
	hidden, known := c.hiddenDependents(ctx, of)
	dependents, blocking := c.graph.dependents(of)
	for _, dependent := range dependents {
		if !dependent.Deleting {
			c.graph.enqueue(dependent.UID)
		}
	}
	if known && blocking == 0 && !slices.ContainsFunc(hidden, func(dependent item) bool { return blocksAny(dependent.Owners, dependent.Namespace, of) }) {
		klog.FromContext(ctx).V(2).Info("Removing the finalizer of an object without dependents", "object", of.name())
		return framework.Result{}, c.removeFinalizer(ctx, of, live, metav1.FinalizerDeleteDependents)
	}
	if err := c.breakCycle(ctx, of, live); err != nil {
		return framework.Result{}, err
	}
	return framework.Result{RequeueAfter: recheckPeriod}, nil
}

// breakCycle clears blockOwnerDeletion for owners that the object itself waits for.
func (c *collector) breakCycle(ctx context.Context, of item, live *metav1.PartialObjectMetadata) error {
	awaited := c.graph.awaited(of.UID)
	owners := slices.Clone(live.OwnerReferences)
	changed := false
	for i := range owners {
		owner, found := awaited[owners[i].UID]
		if found && blocks(owners[i]) && referenceFrom(of.Namespace, owners[i]).names(owner) {
			owners[i].BlockOwnerDeletion = new(false)
			changed = true
		}
	}
	if !changed {
		return nil
	}
	klog.FromContext(ctx).V(2).Info("Breaking a cycle of owners that wait for each other", "object", of.name())
	return c.patchOwners(ctx, of, live, owners)
}

// orphan removes an object from the owners of its dependents, and then its finalizer.
func (c *collector) orphan(ctx context.Context, of item, live *metav1.PartialObjectMetadata) (framework.Result, error) {
	dependents, known := c.hiddenDependents(ctx, of)
	if !known {
		return framework.Result{RequeueAfter: recheckPeriod}, nil
	}
	seen, _ := c.graph.dependents(of)
	dependents = append(dependents, seen...)
	failed := make([]error, len(dependents))
	workqueue.ParallelizeUntil(ctx, orphansAtOnce, len(dependents), func(i int) {
		failed[i] = c.disown(ctx, dependents[i], of)
	})
	if err := errors.Join(errors.Join(failed...), ctx.Err()); err != nil {
		return framework.Result{}, fmt.Errorf("orphan the dependents of %s: %w", of.name(), err)
	}
	klog.FromContext(ctx).V(2).Info("Removing the finalizer of an object whose dependents stay", "object", of.name(), "dependents", len(dependents))
	return framework.Result{}, c.removeFinalizer(ctx, of, live, metav1.FinalizerOrphanDependents)
}

// disown removes one owner from an object.
func (c *collector) disown(ctx context.Context, of, owner item) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		live, err := c.read(ctx, of)
		if err != nil || live == nil {
			return err
		}
		owners := slices.DeleteFunc(slices.Clone(live.OwnerReferences), func(ref metav1.OwnerReference) bool {
			return referenceFrom(of.Namespace, ref).names(owner)
		})
		if len(owners) == len(live.OwnerReferences) {
			return nil
		}
		return c.patchOwners(ctx, of, live, owners)
	})
}

// hidden returns the resources that may have dependents of an object and are not current
// in the informers.
func (c *collector) hidden(of item) []metadatainformers.State {
	return slices.DeleteFunc(c.informers.States(), func(state metadatainformers.State) bool {
		// Cluster-scoped objects cannot have an owner in a namespace.
		return state.Current || of.Namespaced && !state.Namespaced
	})
}

// hiddenDependents lists the dependents of an object that the graph may not have. They
// are unknown if a resource cannot be listed.
func (c *collector) hiddenDependents(ctx context.Context, of item) (dependents []item, known bool) {
	known = true
	for _, state := range c.hidden(of) {
		objects := c.annexMetadata.Resource(state.GroupVersionResource).Namespace(of.Namespace)
		pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, options)
		})
		err := pages.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
			object, ok := obj.(*metav1.PartialObjectMetadata)
			if !ok {
				return fmt.Errorf("unexpected list item %T", obj)
			}
			if dependsOn(object.OwnerReferences, object.Namespace, of) {
				dependents = append(dependents, item{state.Resource, metadatainformers.NewObject(object)})
			}
			return nil
		})
		if err != nil && !apierrors.IsNotFound(err) {
			known = false
			klog.FromContext(ctx).V(2).Info("A deletion waits, because dependents cannot be listed", "object", of.name(), "resource", state.GroupResource(), "err", err)
			c.warn(ctx, of, "DependentsUnknown", state.GroupResource().String(),
				fmt.Sprintf("the deletion waits until %s can be listed, which may be dependents: %v", state.GroupResource(), err))
		}
	}
	return dependents, known
}
