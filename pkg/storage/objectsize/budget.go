// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package objectsize

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// HeavyBytes is the minimum size of a large object. HTTP/2 buffers as much per request
// anyway.
const HeavyBytes = 256 << 10

// Limits in units of the largest object. Processing an object takes several times its size,
// and more at a time would not be faster.
const (
	workingObjects  = 4
	arrivingObjects = 16
	userObjects     = 2
)

// retrySeconds is the Retry-After of refused requests.
const retrySeconds = 2

// Budget bounds the memory of large objects. Bodies that are being received have a separate
// limit, so that slow clients do not block the processing of others. Each user has a share
// of the budget, and waits for it first.
type Budget struct {
	largest           int64
	timeout           time.Duration
	arriving, working *semaphore.Weighted

	mu    sync.Mutex
	users map[string]*share
}

// share is that of a user with requests in the budget.
type share struct {
	bytes    *semaphore.Weighted
	requests int
}

// NewBudget returns a budget for objects of at most largest bytes. Requests wait for it at
// most for timeout.
func NewBudget(largest int64, timeout time.Duration) *Budget {
	registerMetrics()
	return &Budget{
		largest: largest, timeout: timeout, users: map[string]*share{},
		arriving: semaphore.NewWeighted(arrivingObjects * largest),
		working:  semaphore.NewWeighted(workingObjects * largest),
	}
}

// Reservation is that of a request in the budget.
type Reservation struct {
	budget                         *Budget
	bytes                          int64
	releaseShare, arrived, written func()
}

// Reserve waits for the memory of a body before it is received.
func (b *Budget) Reserve(ctx context.Context, caller user.Info, bytes int64) (*Reservation, error) {
	r := &Reservation{budget: b, bytes: min(bytes, b.largest), written: func() {}}
	var err error
	if r.releaseShare, err = b.acquireShare(ctx, caller, r.bytes); err != nil {
		return nil, err
	}
	if r.arrived, err = b.acquire(ctx, b.arriving, r.bytes, "other large objects"); err != nil {
		r.releaseShare()
		return nil, err
	}
	return r, nil
}

// Work waits until the received body may be processed.
func (r *Reservation) Work(ctx context.Context) (err error) {
	r.written, err = r.budget.work(ctx, r.bytes)
	if err != nil {
		r.written = func() {}
		return err
	}
	r.arrived()
	return nil
}

// Written ends the processing. The response may take as long as the client needs.
func (r *Reservation) Written() { r.written() }

// Release releases everything.
func (r *Reservation) Release() {
	r.written()
	r.arrived()
	r.releaseShare()
}

type reservationKey struct{}

// WithReservation marks a request that has a reservation. Upstream's handlers lie between the
// filter that reserves and the storage, and pass only the context.
func WithReservation(ctx context.Context, r *Reservation) context.Context {
	return context.WithValue(ctx, reservationKey{}, r)
}

// Acquire waits until an existing object may be processed, as for a patch. A request with a
// reservation does not wait.
func (b *Budget) Acquire(ctx context.Context, bytes int64) (release func(), err error) {
	if bytes < HeavyBytes || ctx.Value(reservationKey{}) != nil {
		return func() {}, nil
	}
	bytes = min(bytes, b.largest)
	caller, _ := request.UserFrom(ctx)
	releaseShare, err := b.acquireShare(ctx, caller, bytes)
	if err != nil {
		return nil, err
	}
	written, err := b.work(ctx, bytes)
	if err != nil {
		releaseShare()
		return nil, err
	}
	return func() {
		written()
		releaseShare()
	}, nil
}

func (b *Budget) work(ctx context.Context, bytes int64) (written func(), err error) {
	release, err := b.acquire(ctx, b.working, bytes, "other large objects")
	if err != nil {
		return nil, err
	}
	held.Add(float64(bytes))
	return sync.OnceFunc(func() {
		held.Add(-float64(bytes))
		release()
	}), nil
}

func (b *Budget) acquireShare(ctx context.Context, caller user.Info, bytes int64) (release func(), err error) {
	name := shareName(caller)
	b.mu.Lock()
	s := b.users[name]
	if s == nil {
		s = &share{bytes: semaphore.NewWeighted(userObjects * b.largest)}
		b.users[name] = s
	}
	s.requests++
	b.mu.Unlock()
	forget := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if s.requests--; s.requests == 0 {
			delete(b.users, name)
		}
	}
	releaseBytes, err := b.acquire(ctx, s.bytes, bytes, "large objects of "+name)
	if err != nil {
		forget()
		return nil, err
	}
	return sync.OnceFunc(func() {
		releaseBytes()
		forget()
	}), nil
}

// shareName returns the owner of a share. The service accounts of a namespace have one share,
// because a user who can create one of them can create many.
func shareName(caller user.Info) string {
	if caller == nil {
		return ""
	}
	if namespace, _, err := serviceaccount.SplitUsername(caller.GetName()); err == nil {
		return serviceaccount.MakeNamespaceGroupName(namespace)
	}
	return caller.GetName()
}

func (b *Budget) acquire(ctx context.Context, from *semaphore.Weighted, bytes int64, others string) (release func(), err error) {
	if !from.TryAcquire(bytes) && b.wait(ctx, from, bytes) != nil {
		return nil, apierrors.NewTooManyRequests(others+" are being written, try again later", retrySeconds)
	}
	return sync.OnceFunc(func() { from.Release(bytes) }), nil
}

func (b *Budget) wait(ctx context.Context, from *semaphore.Weighted, bytes int64) error {
	waiting.Inc()
	defer waiting.Dec()
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return from.Acquire(ctx, bytes)
}

var (
	held = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace:      "annex",
		Name:           "large_writes_bytes",
		Help:           "Bytes of large objects that are being written.",
		StabilityLevel: metrics.ALPHA,
	})
	waiting = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace:      "annex",
		Name:           "large_writes_waiting",
		Help:           "Writes of large objects that wait for others.",
		StabilityLevel: metrics.ALPHA,
	})
)

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(held, waiting) })
