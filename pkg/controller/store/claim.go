// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/stores"
)

// claimTimeout bounds a write to the etcd of a Store.
const claimTimeout = 5 * time.Second

// claim notes in the status which etcd cluster the store is, and how far its history is
// known, when it is reached for the first time or when its owner has said that it is what
// is there from now on.
func (r *reconciler) claim(ctx context.Context, store *hostingv1alpha1.Store, connection Connection, seen *stores.Snapshot) (claimed bool) {
	if store.Name == hostingv1alpha1.DefaultStoreName {
		// The command line says which it is, and annex holds to it while it runs.
		if seen.Cluster != 0 && seen.Unavailable == nil {
			store.Status.ClusterID = stores.FormatClusterID(seen.Cluster)
		}
		return false
	}
	if seen.Unavailable == nil {
		setHistory(&store.Status, seen.History)
		return false
	}
	adopted := store.Annotations[hostingv1alpha1.AdoptClusterAnnotation] == stores.FormatClusterID(seen.Cluster)
	if !needsClaim(store, seen, adopted) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	if adopted && seen.Mark != nil {
		if err := r.ownerIsGone(ctx, store, seen.Mark); err != nil {
			failed(store, seen, err)
			return false
		}
	}
	found, err := connection.Claim(ctx, store.UID, adopted)
	if err != nil {
		failed(store, seen, err)
		return false
	}
	store.Status.ClusterID = stores.FormatClusterID(found.Cluster)
	setHistory(&store.Status, found.History)
	return true
}

// setHistory notes how far the history of the etcd is known.
func setHistory(status *hostingv1alpha1.StoreStatus, known stores.History) {
	if known.Epoch == "" {
		return
	}
	if before := status.History; before != nil && before.Epoch == known.Epoch {
		known.Revision = max(known.Revision, before.Revision)
		if known.CheckpointRevision == 0 { // none was written yet
			known.Checkpoint, known.CheckpointRevision = before.Checkpoint, before.CheckpointRevision
		}
	}
	status.History = &hostingv1alpha1.StoreHistory{
		Epoch: known.Epoch, Revision: known.Revision,
		Checkpoint: known.Checkpoint, CheckpointRevision: known.CheckpointRevision,
	}
}

// ownerIsGone returns an error if the store whose mark is to be replaced still exists. It
// cannot know of the stores of other annexes.
func (r *reconciler) ownerIsGone(ctx context.Context, store *hostingv1alpha1.Store, mark *stores.Mark) error {
	if mark.UID == store.UID {
		return nil
	}
	owner, err := r.liveOwner(ctx, mark.UID)
	if err != nil {
		return err
	}
	if owner != "" {
		return &stores.UnavailableError{Store: store.Name, Reason: stores.ReasonInUse, Message: fmt.Sprintf(
			"the prefix is that of the Store %q, which exists: its data cannot be adopted", owner)}
	}
	return nil
}

func needsClaim(store *hostingv1alpha1.Store, seen *stores.Snapshot, adopted bool) bool {
	if seen.Cluster == 0 || seen.Unavailable == nil || store.DeletionTimestamp != nil {
		return false
	}
	switch seen.Unavailable.Reason {
	case stores.ReasonUnclaimed:
		return store.Status.ClusterID == "" // else it was claimed a moment ago
	case stores.ReasonWrongCluster, stores.ReasonDataReplaced, stores.ReasonRolledBack, stores.ReasonDiverged, stores.ReasonInUse:
		return adopted
	}
	return false
}

// failed states why the store could not be claimed.
func failed(store *hostingv1alpha1.Store, seen *stores.Snapshot, err error) {
	ready := metav1.Condition{
		Type: hostingv1alpha1.StoreReady, Status: metav1.ConditionFalse, ObservedGeneration: seen.Generation,
		Reason: reasonClaimFailed, Message: sentence(err.Error()),
	}
	var refused *stores.UnavailableError
	if errors.As(err, &refused) {
		ready.Reason, ready.Message = refused.Reason, notReady(store, seen, refused)
	}
	meta.SetStatusCondition(&store.Status.Conditions, ready)
}

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
