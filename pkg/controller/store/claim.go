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
	"github.com/annex-dev/annex/pkg/storage/etcd/stores"
)

// claimTimeout bounds a write to the etcd of a Store.
const claimTimeout = 5 * time.Second

// claim records the etcd cluster and its history in the status when the store is reached
// for the first time, or when its owner adopts the present cluster.
func (r *reconciler) claim(ctx context.Context, store *hostingv1alpha1.Store, connection Connection, seen *stores.Snapshot) (claimed bool) {
	if store.Name == hostingv1alpha1.DefaultStoreName {
		// The command line configures this etcd, and annex keeps to its cluster while it
		// runs.
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

// setHistory records the observed history of the etcd.
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

// ownerIsGone returns an error if the store whose mark would be replaced still exists. It
// cannot check the stores of other annexes.
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

// failed sets the condition of a store that could not be claimed.
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

// finalize removes the finalizer of a store that is being deleted once no resource is
// placed on it. Admission rejects such a DELETE; this covers a resource that was placed
// at the same moment, which continues to be served.
func (r *reconciler) finalize(ctx context.Context, store *hostingv1alpha1.Store, connection Connection) (done bool, err error) {
	placed, err := r.livePlaced(ctx, store.Name)
	if err != nil {
		return false, err
	}
	if placed > 0 {
		r.events.Eventf(store, nil, corev1.EventTypeWarning, "HoldsResources", actionRelease,
			"It is deleted once no resource is placed on it, and served until then; now: %d resources", placed)
		return false, nil
	}
	r.release(ctx, store, connection)
	without := store.DeepCopy()
	without.Finalizers = slices.DeleteFunc(without.Finalizers, func(name string) bool { return name == hostingv1alpha1.StoreFinalizer })
	if _, err := r.update(ctx, without, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("remove the finalizer of store %s: %w", store.Name, err)
	}
	return true, nil
}

// release removes annex's mark from the etcd. A failure does not stop the deletion: the
// etcd may be gone permanently.
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
