// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package framework holds what the controllers share: the work queue with its
// reconcile loop, handlers on informers, and a throttle for repeated writes.
package framework

import (
	"context"
	"math/bits"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	// firstBackoff is the delay before the first retry of a failed key. It doubles with
	// each.
	firstBackoff = 10 * time.Millisecond

	// DefaultMaxBackoff is the maximum delay unless a controller sets another.
	DefaultMaxBackoff = 30 * time.Second

	// An error is logged as such from quietFailures in a row on. With the delays that takes
	// about a second, as a conflict or a server that starts may need.
	quietFailures = 8

	// A reconcile may continue for finishPeriod after shutdown: the result of an interrupted
	// write is unknown. It is shorter than the time between a failed renewal of the lease
	// and the next leader.
	finishPeriod = 2 * time.Second
)

// Result is the result of a reconcile.
type Result struct {
	// A positive RequeueAfter requeues the key after that delay, or sooner if the reconcile failed.
	RequeueAfter time.Duration
	// Backoff requeues the key as after a failure, without an error in the log.
	Backoff bool
}

// ReconcileFunc brings the object of a key to its desired state.
type ReconcileFunc[K comparable] func(ctx context.Context, key K) (Result, error)

// QueueConfig configures a Queue.
type QueueConfig[K comparable] struct {
	// Name is the controller's name, used for the logger and the queue's metrics.
	Name string
	// Reconcile is called for each key, by one worker at a time.
	Reconcile ReconcileFunc[K]
	// MaxBackoff replaces DefaultMaxBackoff when positive.
	MaxBackoff time.Duration
}

// Queue holds the keys of one controller and reconciles them while it runs. A controller
// without a state of its own is a Queue.
type Queue[K comparable] struct {
	Watches

	name      string
	reconcile ReconcileFunc[K]
	queue     workqueue.TypedRateLimitingInterface[K]
}

// NewQueue returns a Queue that accepts keys, and reconciles them once it runs.
func NewQueue[K comparable](config QueueConfig[K]) *Queue[K] {
	maxBackoff := DefaultMaxBackoff
	if config.MaxBackoff > 0 {
		maxBackoff = config.MaxBackoff
	}
	return &Queue[K]{
		name:      config.Name,
		reconcile: config.Reconcile,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[K](firstBackoff, maxBackoff),
			workqueue.TypedRateLimitingQueueConfig[K]{Name: config.Name},
		),
	}
}

// Add queues key.
func (q *Queue[K]) Add(key K) {
	q.queue.Add(key)
}

// AddAfter queues key after a delay. If several delays for one key overlap, the shortest
// counts, so repeated calls coalesce.
func (q *Queue[K]) AddAfter(key K, delay time.Duration) {
	q.queue.AddAfter(key, delay)
}

// AddFresh queues key, and ends its backoff.
func (q *Queue[K]) AddFresh(key K) {
	q.queue.Forget(key)
	q.queue.Add(key)
}

// Run waits for the caches, and then reconciles keys until ctx is done. It returns once
// every worker has returned and the handlers are removed. A Queue runs once.
func (q *Queue[K]) Run(ctx context.Context, workers int) {
	defer utilruntime.HandleCrashWithContext(ctx)
	logger := klog.LoggerWithName(klog.FromContext(ctx), q.name)
	ctx = klog.NewContext(ctx, logger)

	defer q.Unwatch()
	working, end := Outlast(ctx)
	defer end()
	var running sync.WaitGroup
	defer running.Wait()
	defer q.queue.ShutDown()

	if !q.Wait(ctx) {
		return
	}
	logger.V(2).Info("Starting workers", "workers", workers)
	for range workers {
		running.Go(func() { wait.UntilWithContext(ctx, func(ctx context.Context) { q.work(ctx, working) }, time.Second) })
	}
	<-ctx.Done()
	logger.V(2).Info("Stopping workers")
}

// work reconciles keys until the queue is shut down.
func (q *Queue[K]) work(ctx, working context.Context) {
	for q.next(ctx, working) {
	}
}

// next reconciles one key and reports whether there may be another. It begins none when
// ctx is done, and lets one continue while working is not.
func (q *Queue[K]) next(ctx, working context.Context) bool {
	key, shutDown := q.queue.Get()
	if shutDown {
		return false
	}
	defer q.queue.Done(key)
	if ctx.Err() != nil {
		// The next start finds what is still queued.
		return true
	}

	logger := klog.FromContext(ctx).WithValues("key", key)
	started := time.Now()
	result, err := q.reconcile(klog.NewContext(working, logger), key)
	logger.V(4).Info("Reconciled", "duration", time.Since(started), "requeueAfter", result.RequeueAfter, "err", err)

	switch {
	case err == nil && result.Backoff:
		q.queue.AddRateLimited(key)
	case err == nil:
		q.queue.Forget(key)
	case ctx.Err() != nil:
		return true
	default:
		failures := q.queue.NumRequeues(key) + 1
		if isLoud(failures) {
			logger.Error(err, "Reconciling keeps failing, trying again", "failures", failures)
		} else {
			logger.V(2).Info("Reconciling failed, trying again", "failures", failures, "err", err)
		}
		q.queue.AddRateLimited(key)
	}
	if result.RequeueAfter > 0 {
		q.queue.AddAfter(key, result.RequeueAfter)
	}
	return true
}

// Outlast returns a context for work that began before ctx is done: it is done finishPeriod
// later, or when it is canceled.
func Outlast(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(finishPeriod, end)
		context.AfterFunc(longer, func() { timer.Stop() })
	})
	return longer, func() {
		stop()
		end()
	}
}

// isLoud reports whether to log a failure as an error: with growing intervals, so that a
// permanent failure does not fill the log.
func isLoud(failures int) bool {
	return failures >= quietFailures && bits.OnesCount(uint(failures)) == 1
}
