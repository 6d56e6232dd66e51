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
)

// HeavyBytes is the size from which an object counts as large. It is as much as
// HTTP/2 buffers for a request in any case.
const HeavyBytes = 256 << 10

// How many objects of the largest size may be in memory at the same time. Working
// on one takes several times its size; more at a time would be no faster.
const (
	workingObjects  = 4
	arrivingObjects = 16
	userObjects     = 2
)

// retrySeconds is when a client that found no room may try again.
const retrySeconds = 2

// Budget bounds the memory of large objects. Bodies that arrive have a limit of
// their own, so a client that sends slowly does not keep others from working.
// Each user has a share of both, and waits for it before for anything else.
type Budget struct {
	largest           int64
	timeout           time.Duration
	arriving, working *semaphore.Weighted

	mu    sync.Mutex
	users map[string]*share
}

// share is what a user with requests in the budget has of it.
type share struct {
	bytes    *semaphore.Weighted
	requests int
}

// NewBudget returns a budget for objects of at most so many bytes. A request waits
// for its part until timeout.
func NewBudget(largest int64, timeout time.Duration) *Budget {
	registerMetrics()
	return &Budget{
		largest: largest, timeout: timeout, users: map[string]*share{},
		arriving: semaphore.NewWeighted(arrivingObjects * largest),
		working:  semaphore.NewWeighted(workingObjects * largest),
	}
}

// Part is what one request has of the budget.
type Part struct {
	budget                      *Budget
	bytes                       int64
	giveShare, arrived, written func()
}

// Arrive waits for a part for a body of the user that is about to arrive.
func (b *Budget) Arrive(ctx context.Context, who user.Info, bytes int64) (*Part, error) {
	p := &Part{budget: b, bytes: min(bytes, b.largest), written: func() {}}
	var err error
	if p.giveShare, err = b.takeShare(ctx, who, p.bytes); err != nil {
		return nil, err
	}
	if p.arrived, err = b.take(ctx, b.arriving, p.bytes, "other large objects"); err != nil {
		p.giveShare()
		return nil, err
	}
	return p, nil
}

// Work waits until the body, which has arrived, may be worked on.
func (p *Part) Work(ctx context.Context) (err error) {
	p.written, err = p.budget.work(ctx, p.bytes)
	if err != nil {
		p.written = func() {}
		return err
	}
	p.arrived()
	return nil
}

// Written gives back what working takes: from here on the client decides how long it takes.
func (p *Part) Written() { p.written() }

// Release gives everything back.
func (p *Part) Release() {
	p.written()
	p.arrived()
	p.giveShare()
}

type partKey struct{}

// WithPart says that the request has its part already. Upstream's handlers lie between the
// filter that acquires it and the storage, and pass nothing but the context.
func WithPart(ctx context.Context, p *Part) context.Context {
	return context.WithValue(ctx, partKey{}, p)
}

// Acquire waits until an object may be worked on that the request did not bring.
// A request that has a part never waits for another.
func (b *Budget) Acquire(ctx context.Context, bytes int64) (release func(), err error) {
	if bytes < HeavyBytes || ctx.Value(partKey{}) != nil {
		return func() {}, nil
	}
	bytes = min(bytes, b.largest)
	who, _ := request.UserFrom(ctx)
	giveShare, err := b.takeShare(ctx, who, bytes)
	if err != nil {
		return nil, err
	}
	written, err := b.work(ctx, bytes)
	if err != nil {
		giveShare()
		return nil, err
	}
	return func() {
		written()
		giveShare()
	}, nil
}

func (b *Budget) work(ctx context.Context, bytes int64) (written func(), err error) {
	give, err := b.take(ctx, b.working, bytes, "other large objects")
	if err != nil {
		return nil, err
	}
	held.Add(float64(bytes))
	return sync.OnceFunc(func() {
		held.Add(-float64(bytes))
		give()
	}), nil
}

func (b *Budget) takeShare(ctx context.Context, who user.Info, bytes int64) (giveShare func(), err error) {
	name := shareName(who)
	b.mu.Lock()
	s := b.users[name]
	if s == nil {
		s = &share{bytes: semaphore.NewWeighted(userObjects * b.largest)}
		b.users[name] = s
	}
	s.requests++
	b.mu.Unlock()
	leave := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if s.requests--; s.requests == 0 {
			delete(b.users, name)
		}
	}
	give, err := b.take(ctx, s.bytes, bytes, "large objects of "+name)
	if err != nil {
		leave()
		return nil, err
	}
	return sync.OnceFunc(func() {
		give()
		leave()
	}), nil
}

// shareName says whose share a request takes. The service accounts of a namespace
// have one, because whoever can make one of them can make many.
func shareName(who user.Info) string {
	if who == nil {
		return ""
	}
	if namespace, _, err := serviceaccount.SplitUsername(who.GetName()); err == nil {
		return serviceaccount.MakeNamespaceGroupName(namespace)
	}
	return who.GetName()
}

func (b *Budget) take(ctx context.Context, from *semaphore.Weighted, bytes int64, others string) (give func(), err error) {
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
