// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/storage/etcd/stores"
)

const (
	// minInterval is the minimum time between writes of one status.
	minInterval = time.Second

	// The status of an idle Store is refreshed every refreshInterval. Its etcd is probed
	// slightly more often.
	refreshInterval = 10 * time.Second

	// A changed history of a Store is recorded every historyInterval. After a restart, annex
	// knows only the recorded one.
	historyInterval = refreshInterval

	// troubleInterval is the refresh interval of a Store that is not ready.
	troubleInterval = 5 * time.Second
)

// updateFunc is a client's method that updates a Store.
type updateFunc func(ctx context.Context, store *hostingv1alpha1.Store, options metav1.UpdateOptions) (*hostingv1alpha1.Store, error)

// reconciler holds the dependencies of one reconcile.
type reconciler struct {
	getStore             func(name string) (*hostingv1alpha1.Store, error)
	updateStatus, update updateFunc
	connection           func(name string) (Connection, error)
	// objects counts annex's objects in a store, and returns false while the number is
	// unknown.
	objects func(store string) (int64, bool)
	// placed counts the resources on a store from the cache; livePlaced reads them from
	// the API.
	placed     func(store string) int32
	livePlaced func(ctx context.Context, store string) (int32, error)
	// liveOwner reads the name of the store with a UID from the API, empty if there is
	// none.
	liveOwner func(ctx context.Context, uid types.UID) (name string, err error)
	events    events.EventRecorder
	throttle  *framework.Throttle
	now       func() time.Time

	mu sync.Mutex
	// trouble is the reason for which each store was last not ready.
	trouble map[string]string
	// noted has the time at which the history of each store was last recorded.
	noted map[string]time.Time
}

// reconcile writes the status of one store if it changed.
func (r *reconciler) reconcile(ctx context.Context, name string) (framework.Result, error) {
	store, err := r.getStore(name)
	if apierrors.IsNotFound(err) {
		r.throttle.Forget(name)
		r.forget(name)
		return framework.Result{}, nil
	}
	if err != nil {
		return framework.Result{}, fmt.Errorf("read store %s: %w", name, err)
	}
	if wait := r.throttle.Delay(name); wait > 0 {
		return framework.Result{RequeueAfter: wait}, nil
	}
	connection, err := r.connection(name)
	if err != nil {
		// The connections watch the same objects and will have this one soon.
		_, err := r.refresh(ctx, store, nil, notConnected())
		return framework.Result{RequeueAfter: minInterval}, err
	}
	if store.DeletionTimestamp != nil && hasFinalizer(store) {
		if done, err := r.finalize(ctx, store, connection); done || err != nil {
			return framework.Result{}, err
		}
	}
	seen := connection.Snapshot()
	if seen.Unavailable == nil || !isTransient(seen.Unavailable.Reason) {
		r.throttle.Mark(name)
	}
	if isAdopted(store, seen) {
		return framework.Result{}, r.endAdoption(ctx, store)
	}
	return r.refresh(ctx, store, connection, seen)
}

// isTransient reports whether a reason is part of creating a store. It is left after at
// most two writes.
func isTransient(reason string) bool {
	return reason == stores.ReasonConnecting || reason == stores.ReasonUnclaimed
}

// notConnected is the snapshot of a store without a connection yet.
func notConnected() *stores.Snapshot {
	return &stores.Snapshot{Unavailable: &stores.UnavailableError{Reason: stores.ReasonConnecting, Message: "annex has not reached it yet"}}
}

// refresh updates the status.
func (r *reconciler) refresh(ctx context.Context, store *hostingv1alpha1.Store, connection Connection, seen *stores.Snapshot) (framework.Result, error) {
	if seen.UID != store.UID && seen.UID != "" {
		return framework.Result{RequeueAfter: minInterval}, nil // of a store of the same name before it
	}
	updated := store.DeepCopy()
	setObserved(updated, seen, r.now())
	claimed := r.claim(ctx, updated, connection, seen)
	updated.Status.Resources = r.placed(store.Name)
	if objects, known := r.objects(store.Name); known {
		updated.Status.Objects = objects
	}
	ready := meta.FindStatusCondition(updated.Status.Conditions, hostingv1alpha1.StoreReady)
	r.announce(ctx, store.Name, ready)

	written, err := r.write(ctx, updated, &store.Status)
	if written {
		r.recordEvent(store, updated, claimed)
	}
	switch {
	case ready.Status != metav1.ConditionTrue && store.Name == hostingv1alpha1.DefaultStoreName:
		// The status is stored in this store, so the failed write adds no information.
		if err != nil {
			klog.FromContext(ctx).V(2).Info("The status of a store that is not ready was not written", "err", err)
		}
		return framework.Result{RequeueAfter: troubleInterval}, nil
	case ready.Status != metav1.ConditionTrue:
		return framework.Result{RequeueAfter: troubleInterval}, err
	}
	return framework.Result{RequeueAfter: refreshInterval}, err
}

// isAdopted reports whether the cluster that the owner named is in use.
func isAdopted(store *hostingv1alpha1.Store, seen *stores.Snapshot) bool {
	named := store.Annotations[hostingv1alpha1.AdoptClusterAnnotation]
	return named != "" && named == store.Status.ClusterID && seen.UID == store.UID && seen.Unavailable == nil
}

// endAdoption removes the annotation: an etcd that loses its data may get the same ID
// again, and must not be adopted without a new decision.
func (r *reconciler) endAdoption(ctx context.Context, store *hostingv1alpha1.Store) error {
	without := store.DeepCopy()
	delete(without.Annotations, hostingv1alpha1.AdoptClusterAnnotation)
	if _, err := r.update(ctx, without, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("end the adoption of a cluster by store %s: %w", store.Name, err)
	}
	return nil
}

// write writes the status if it changed.
func (r *reconciler) write(ctx context.Context, store *hostingv1alpha1.Store, before *hostingv1alpha1.StoreStatus) (written bool, err error) {
	if !needsWrite(before, &store.Status) && !r.historyIsDue(store, before) {
		return false, nil
	}
	_, err = r.updateStatus(ctx, store, metav1.UpdateOptions{})
	if err == nil {
		r.mu.Lock()
		r.noted[store.Name] = r.now()
		r.mu.Unlock()
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("write status of store %s: %w", store.Name, err)
	}
	return err == nil, nil
}

// historyIsDue reports whether to record the history although nothing else changed.
func (r *reconciler) historyIsDue(store *hostingv1alpha1.Store, before *hostingv1alpha1.StoreStatus) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !equality.Semantic.DeepEqual(before.History, store.Status.History) && r.now().Sub(r.noted[store.Name]) >= historyInterval
}

// announce logs when a store becomes not ready, when the reason changes, and when it is
// ready again: meanwhile the log may be the only source.
func (r *reconciler) announce(ctx context.Context, name string, ready *metav1.Condition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "store", name)
	last, troubled := r.trouble[name]
	switch {
	case ready.Status == metav1.ConditionFalse && last != ready.Reason && !isTransient(ready.Reason):
		r.trouble[name] = ready.Reason
		logger.Error(nil, "The store is not ready", "reason", ready.Reason, "message", ready.Message)
	case ready.Status == metav1.ConditionTrue && troubled:
		delete(r.trouble, name)
		logger.Info("The store is ready again")
	}
}

func (r *reconciler) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.trouble, name)
	delete(r.noted, name)
}

// Actions in events.
const (
	actionLook    = "Look"
	actionClaim   = "Claim"
	actionRelease = "Release"
)

// recordEvent records an event for each changed condition, with the condition's reason, and for a
// claim.
func (r *reconciler) recordEvent(before, after *hostingv1alpha1.Store, claimed bool) {
	if claimed {
		r.events.Eventf(after, nil, corev1.EventTypeNormal, "Claimed", actionClaim,
			"Objects are kept in the etcd cluster %s from now on", after.Status.ClusterID)
	}
	for _, is := range after.Status.Conditions {
		was := meta.FindStatusCondition(before.Status.Conditions, is.Type)
		if !needsEvent(was, is) {
			continue
		}
		kind := corev1.EventTypeWarning
		if isHealthy(is) {
			kind = corev1.EventTypeNormal
		}
		r.events.Eventf(after, nil, kind, eventReason(is), actionLook, "%s", is.Message)
	}
}

// needsEvent reports whether a change of a condition deserves an event.
func needsEvent(was *metav1.Condition, is metav1.Condition) bool {
	switch {
	case was != nil && was.Status == is.Status && was.Reason == is.Reason:
		return false
	case is.Status == metav1.ConditionUnknown || isTransient(is.Reason):
		return false
	case is.Type == hostingv1alpha1.StoreUnderPressure && is.Status == metav1.ConditionFalse:
		return was != nil && was.Status == metav1.ConditionTrue
	case is.Type == hostingv1alpha1.StoreUnderPressure && is.Reason == stores.ReasonNoSpace:
		return false // it is not ready either, for the same reason
	}
	return true
}

// eventReason replaces reasons that are too general for an event.
func eventReason(is metav1.Condition) string {
	switch is.Reason {
	case reasonAvailable:
		return "Ready"
	case reasonNoPressure:
		return "PressureRelieved"
	}
	return is.Reason
}

func isHealthy(condition metav1.Condition) bool {
	if condition.Type == hostingv1alpha1.StoreReady {
		return condition.Status == metav1.ConditionTrue && condition.Reason == reasonAvailable
	}
	return condition.Status == metav1.ConditionFalse
}
