// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/internal/pace"
	"github.com/annex-dev/annex/pkg/controller/internal/queue"
)

const (
	// minInterval keeps looks at one etcd, and so writes of its status, apart.
	minInterval = time.Second

	// refreshInterval is how often an etcd is looked at that nobody writes to.
	refreshInterval = 30 * time.Second

	// troubleInterval is how often one is looked at that is not ready.
	troubleInterval = 5 * time.Second

	// answerTimeout is how long an etcd may take to answer.
	answerTimeout = 5 * time.Second
)

// reconciler holds what one look at a store needs.
type reconciler struct {
	getStore     func(name string) (*hostingv1alpha1.Store, error)
	updateStatus func(ctx context.Context, store *hostingv1alpha1.Store) error
	// observe looks at the etcd of the default store.
	observe func(ctx context.Context) observation
	// objects counts what annex keeps there, and returns false while it does not know.
	objects func() (int64, bool)
	pace    *pace.Pace
	now     func() time.Time

	mu sync.Mutex
	// trouble is the message with which each store was last not ready.
	trouble map[string]string
}

// reconcile looks at the etcd of one store and writes down what is news.
func (r *reconciler) reconcile(ctx context.Context, name string) (queue.Result, error) {
	store, err := r.getStore(name)
	if apierrors.IsNotFound(err) {
		r.pace.Forget(name)
		r.forget(name)
		return queue.Result{}, nil
	}
	if err != nil {
		return queue.Result{}, fmt.Errorf("reading store %s: %w", name, err)
	}
	if name != hostingv1alpha1.DefaultStoreName {
		updated := store.DeepCopy()
		setNotConnected(&updated.Status, store.Generation, r.now())
		return queue.Result{}, r.write(ctx, store, updated)
	}
	if wait := r.pace.Wait(name); wait > 0 {
		return queue.Result{RequeueAfter: wait}, nil
	}
	r.pace.Mark(name)
	return r.refresh(ctx, store)
}

// refresh does so for the store that annex keeps objects in.
func (r *reconciler) refresh(ctx context.Context, store *hostingv1alpha1.Store) (queue.Result, error) {
	asking, cancel := context.WithTimeout(ctx, answerTimeout)
	seen := r.observe(asking)
	cancel()
	if ctx.Err() != nil {
		// An etcd that was not given the time to answer is not down.
		return queue.Result{}, ctx.Err()
	}
	updated := store.DeepCopy()
	setObserved(&updated.Status, seen, store.Generation, r.now())
	if objects, known := r.objects(); known {
		updated.Status.Objects = objects
	}
	ready := meta.FindStatusCondition(updated.Status.Conditions, hostingv1alpha1.StoreReady)
	r.announce(ctx, store.Name, ready)

	err := r.write(ctx, store, updated)
	if ready.Status != metav1.ConditionTrue {
		// The store is where its status is kept: that this cannot be written
		// there now is no further trouble.
		if err != nil {
			klog.FromContext(ctx).V(2).Info("The status of a store that is not ready was not written", "err", err)
		}
		return queue.Result{RequeueAfter: troubleInterval}, nil
	}
	return queue.Result{RequeueAfter: refreshInterval}, err
}

// write writes the status if it is news.
func (r *reconciler) write(ctx context.Context, before, after *hostingv1alpha1.Store) error {
	if !isNews(&before.Status, &after.Status) {
		return nil
	}
	if err := r.updateStatus(ctx, after); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing status of store %s: %w", after.Name, err)
	}
	return nil
}

// announce logs when a store ceases to be ready, does so for another reason, or
// is ready again: while it is not, the log may be all there is to read.
func (r *reconciler) announce(ctx context.Context, name string, ready *metav1.Condition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	logger := klog.FromContext(ctx)
	last, troubled := r.trouble[name]
	switch {
	case ready.Status != metav1.ConditionTrue && last != ready.Message:
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
}
