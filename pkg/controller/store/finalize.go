// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

func hasFinalizer(store *hostingv1alpha1.Store) bool {
	return slices.Contains(store.Finalizers, hostingv1alpha1.StoreFinalizer)
}

// finalize lets a store go that is being deleted, once nothing is placed on it. A
// DELETE is refused before while something is; this is for what was placed in the
// moment between, and it stays served.
func (r *reconciler) finalize(ctx context.Context, store *hostingv1alpha1.Store, connection Connection) (done bool, err error) {
	placed, err := r.livePlaced(ctx, store.Name)
	if err != nil {
		return false, err
	}
	if placed > 0 {
		r.events.Eventf(store, nil, corev1.EventTypeWarning, "HoldsResources", actionRelease,
			"It goes once nothing is placed on it any longer, and is served until then: %d resources are", placed)
		return false, nil
	}
	r.release(ctx, store, connection)
	without := store.DeepCopy()
	without.Finalizers = slices.DeleteFunc(without.Finalizers, func(name string) bool { return name == hostingv1alpha1.StoreFinalizer })
	if err := r.update(ctx, without); err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("let store %s go: %w", store.Name, err)
	}
	return true, nil
}

// release takes annex's mark out of the etcd. Where that is not possible the store
// goes all the same: its etcd may be gone for good.
func (r *reconciler) release(ctx context.Context, store *hostingv1alpha1.Store, connection Connection) {
	if store.Status.ClusterID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	if err := connection.Release(ctx, store.UID); err != nil {
		r.events.Eventf(store, nil, corev1.EventTypeWarning, "NotReleased", actionRelease,
			"The mark of this Store stays in the etcd cluster %s and keeps other Stores off the prefix: %v", store.Status.ClusterID, err)
	}
}
