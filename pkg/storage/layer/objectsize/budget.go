// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package objectsize

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
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
	arriving, working pool

	mu    sync.Mutex
	users map[string]*share
}

// share is the memory of one user who has requests in the budget.
type share struct {
	bytes    *semaphore.Weighted
	requests int
}

// pool is a part of the budget. Administrators have a reserve, for when all others occupy the rest.
type pool struct {
	rest, reserve *semaphore.Weighted
	bytes         int64
}

func newPool(objects, largest int64) pool {
	bytes := objects * largest
	return pool{rest: semaphore.NewWeighted(bytes), reserve: semaphore.NewWeighted(largest), bytes: bytes}
}

// NewBudget returns a budget for objects of at most largest bytes. Requests wait for it at
// most for timeout.
func NewBudget(largest int64, timeout time.Duration) *Budget {
	registerMetrics()
	return &Budget{
		largest: largest, timeout: timeout, users: map[string]*share{},
		arriving: newPool(arrivingObjects, largest), working: newPool(workingObjects, largest),
	}
}

// Reservation is the memory that a request holds in a Budget.
type Reservation struct {
	budget                *Budget
	caller                user.Info
	releaseShare, written func()
	arrived               []func()
}

// Reservation returns an empty Reservation of a caller, which is released at the end of its request.
func (b *Budget) Reservation(caller user.Info) *Reservation {
	return &Reservation{budget: b, caller: caller, releaseShare: func() {}, written: func() {}}
}

// Share waits for the caller's share of the memory of a body.
func (r *Reservation) Share(ctx context.Context, bytes int64) error {
	release, err := r.budget.acquireShare(ctx, r.caller, bytes)
	if err == nil {
		r.releaseShare = release
	}
	return err
}

// Arrive waits for the memory of the next part of a body before that is received. A body occupies
// only what its client has sent.
func (r *Reservation) Arrive(ctx context.Context, bytes int64) error {
	release, err := r.budget.acquire(ctx, r.budget.arriving, r.caller, bytes)
	if err == nil {
		r.arrived = append(r.arrived, release)
	}
	return err
}

// Work waits until an object of a weight may be processed, whose body was received.
func (r *Reservation) Work(ctx context.Context, weight int64) error {
	// The share of what has arrived is released first: two requests of a user would wait for each other.
	r.releaseShare()
	if err := r.Share(ctx, weight); err != nil {
		return err
	}
	release, err := r.budget.acquire(ctx, r.budget.working, r.caller, weight)
	if err != nil {
		return err
	}
	held.Add(float64(weight))
	r.written = sync.OnceFunc(func() {
		held.Add(-float64(weight))
		release()
	})
	r.leaveArriving()
	return nil
}

func (r *Reservation) leaveArriving() {
	for _, release := range r.arrived {
		release()
	}
	r.arrived = nil
}

// Written ends the processing. The response may take as long as the client needs.
func (r *Reservation) Written() { r.written() }

// Release releases everything.
func (r *Reservation) Release() {
	r.written()
	r.leaveArriving()
	r.releaseShare()
}

// Request has the decisions about a request that the filter which receives its body makes for the storage.
type Request interface {
	// IsReserved reports whether the request has a Reservation.
	IsReserved() bool
	// MaxItems bounds the [Values.Items] of an object that the request changes; 0 means no bound.
	MaxItems() int64
}

type requestKey struct{}

// WithRequest adds a Request to its context, which alone reaches the storage through upstream's handlers.
func WithRequest(ctx context.Context, r Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

// RequestFrom returns the Request of a context, or nil.
func RequestFrom(ctx context.Context) Request {
	r, _ := ctx.Value(requestKey{}).(Request)
	return r
}

// Acquire waits until an existing object of a weight may be processed, as for a patch. A request
// with a reservation does not wait.
func (b *Budget) Acquire(ctx context.Context, weight int64) (release func(), err error) {
	if r := RequestFrom(ctx); weight < HeavyBytes || r != nil && r.IsReserved() {
		return func() {}, nil
	}
	caller, _ := request.UserFrom(ctx)
	r := b.Reservation(caller)
	if err := r.Work(ctx, weight); err != nil {
		r.Release()
		return nil, err
	}
	return r.Release, nil
}

func (b *Budget) acquireShare(ctx context.Context, caller user.Info, bytes int64) (release func(), err error) {
	name := shareName(caller)
	b.mu.Lock()
	s := b.users[name]
	if s == nil {
		s = &share{bytes: semaphore.NewWeighted(b.shareBytes())}
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
	bytes = min(bytes, b.shareBytes())
	if !s.bytes.TryAcquire(bytes) && b.wait(ctx, s.bytes, bytes) != nil {
		forget()
		return nil, busy("large objects of " + name)
	}
	return sync.OnceFunc(func() {
		s.bytes.Release(bytes)
		forget()
	}), nil
}

func (b *Budget) shareBytes() int64 { return userObjects * b.largest }

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

func (b *Budget) acquire(ctx context.Context, from pool, caller user.Info, bytes int64) (release func(), err error) {
	acquired, bytes := from.rest, min(bytes, from.bytes)
	if !acquired.TryAcquire(bytes) {
		if reserved := min(bytes, b.largest); isAdministrator(caller) && from.reserve.TryAcquire(reserved) {
			acquired, bytes = from.reserve, reserved
		} else if b.wait(ctx, acquired, bytes) != nil {
			return nil, busy("other large objects")
		}
	}
	return sync.OnceFunc(func() { acquired.Release(bytes) }), nil
}

func isAdministrator(caller user.Info) bool {
	return caller != nil && slices.Contains(caller.GetGroups(), user.SystemPrivilegedGroup)
}

func busy(what string) error {
	return apierrors.NewTooManyRequests(what+" are being written, try again later", retrySeconds)
}

func (b *Budget) wait(ctx context.Context, from *semaphore.Weighted, bytes int64) error {
	waiting.Inc()
	defer waiting.Dec()
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return from.Acquire(ctx, bytes)
}
