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
	"github.com/annex-dev/annex/pkg/storage/stores"
)

const (
	// minInterval keeps writes of one status apart.
	minInterval = time.Second

	// refreshInterval is how often the status is brought up to date of a Store that
	// nobody writes to; annex looks at its etcd a little more often.
	refreshInterval = 10 * time.Second

	// historyInterval is how often the history of a Store is written down that changes.
	// If annex ends, it does not know what happened since.
	historyInterval = refreshInterval

	// troubleInterval is how often that is of one that is not ready.
	troubleInterval = 5 * time.Second
)

// reconciler holds what one look at a store needs.
type reconciler struct {
	getStore     func(name string) (*hostingv1alpha1.Store, error)
	updateStatus func(ctx context.Context, store *hostingv1alpha1.Store) (*hostingv1alpha1.Store, error)
	update       func(ctx context.Context, store *hostingv1alpha1.Store) error
	connection   func(name string) (Connection, error)
	// objects counts what annex keeps in a store, and returns false while it does
	// not know.
	objects func(store string) (int64, bool)
	// placed counts the resources that are placed on a store, as far as was seen;
	// livePlaced asks.
	placed     func(store string) int32
	livePlaced func(ctx context.Context, store string) (int32, error)
	// liveOwner asks which store has a UID, none if it is empty.
	liveOwner func(ctx context.Context, uid types.UID) (name string, err error)
	events    events.EventRecorder
	throttle  *framework.Throttle
	now       func() time.Time

	mu sync.Mutex
	// trouble is the message with which each store was last not ready.
	trouble map[string]string
	// noted is when the history of each store was last written down.
	noted map[string]time.Time
}

// reconcile writes down what is news of one store.
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
		// The connections follow the same objects and will have it in a moment.
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

// isTransient reports whether a reason not to be ready is about to go by itself: who
// made a store waits for it, and there are no more than two writes until it is there.
func isTransient(reason string) bool {
	return reason == stores.ReasonConnecting || reason == stores.ReasonUnclaimed
}

// notConnected is what was seen of a store that annex has only just heard of.
func notConnected() *stores.Snapshot {
	return &stores.Snapshot{Unavailable: &stores.UnavailableError{Reason: stores.ReasonConnecting, Message: "annex has not reached it yet"}}
}

// refresh brings the status up to date.
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
		// The store is where its status is kept: that this cannot be written
		// there now is no further trouble.
		if err != nil {
			klog.FromContext(ctx).V(2).Info("The status of a store that is not ready was not written", "err", err)
		}
		return framework.Result{RequeueAfter: troubleInterval}, nil
	case ready.Status != metav1.ConditionTrue:
		return framework.Result{RequeueAfter: troubleInterval}, err
	}
	return framework.Result{RequeueAfter: refreshInterval}, err
}

// isAdopted reports whether the cluster serves that the owner of the store named.
func isAdopted(store *hostingv1alpha1.Store, seen *stores.Snapshot) bool {
	named := store.Annotations[hostingv1alpha1.AdoptClusterAnnotation]
	return named != "" && named == store.Status.ClusterID && seen.UID == store.UID && seen.Unavailable == nil
}

// endAdoption takes the annotation away: an etcd that loses its data and begins anew
// has the same ID again, and its owner has to be asked again.
func (r *reconciler) endAdoption(ctx context.Context, store *hostingv1alpha1.Store) error {
	without := store.DeepCopy()
	delete(without.Annotations, hostingv1alpha1.AdoptClusterAnnotation)
	if err := r.update(ctx, without); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("end the adoption of a cluster by store %s: %w", store.Name, err)
	}
	return nil
}

// write writes the status if it is news.
func (r *reconciler) write(ctx context.Context, store *hostingv1alpha1.Store, before *hostingv1alpha1.StoreStatus) (written bool, err error) {
	if !needsWrite(before, &store.Status) && !r.historyIsDue(store, before) {
		return false, nil
	}
	_, err = r.updateStatus(ctx, store)
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

// historyIsDue reports whether the history of a store is to be written down that is news
// by nothing else.
func (r *reconciler) historyIsDue(store *hostingv1alpha1.Store, before *hostingv1alpha1.StoreStatus) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !equality.Semantic.DeepEqual(before.History, store.Status.History) && r.now().Sub(r.noted[store.Name]) >= historyInterval
}

// announce logs when a store ceases to be ready, does so for another reason, or
// is ready again: while it is not, the log may be all there is to read.
func (r *reconciler) announce(ctx context.Context, name string, ready *metav1.Condition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "store", name)
	last, troubled := r.trouble[name]
	switch {
	case ready.Status == metav1.ConditionFalse && last != ready.Message && !isTransient(ready.Reason):
		r.trouble[name] = ready.Message
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

// What is done to a store, as events name it.
const (
	actionLook    = "Look"
	actionClaim   = "Claim"
	actionRelease = "Release"
)

// recordEvent records an event for each condition that is another than before, and one if
// the store was claimed. The reason is that of the condition, so that events and status
// can be read together.
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

// needsEvent reports whether people want to know what a condition became.
func needsEvent(was *metav1.Condition, is metav1.Condition) bool {
	switch {
	case was != nil && was.Status == is.Status && was.Reason == is.Reason:
		return false
	case is.Status == metav1.ConditionUnknown || isTransient(is.Reason):
		return false
	case is.Type == hostingv1alpha1.StoreUnderPressure && is.Status == metav1.ConditionFalse:
		return was != nil && was.Status == metav1.ConditionTrue // that it never was goes without saying
	case is.Type == hostingv1alpha1.StoreUnderPressure && is.Reason == stores.ReasonNoSpace:
		return false // it is not ready either, for the same reason
	}
	return true
}

// eventReason says what a condition is about where its own reason does not.
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
