// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

const (
	mostPending = 4000

	minRetry, maxRetry = 50 * time.Millisecond, 10 * time.Second

	// A problem names at most maxReported different errors.
	maxReported = 3
)

// queue has the keys of objects that a Syncer has to write.
type queue struct {
	workqueue.TypedRateLimitingInterface[string]

	// most is the number of pending keys from which on pages wait.
	most int

	mu      sync.Mutex
	pending map[string]pending
}

// pending is a key that is queued, in work, or waits for another attempt.
type pending struct {
	// added counts how often it was.
	added int
	// err is the error of the last attempt.
	err error
}

func newQueue() *queue { return &queue{most: mostPending, pending: map[string]pending{}} }

// start starts the queue, until ctx is done or what it returns is called.
func (q *queue) start(ctx context.Context) (end func()) {
	q.TypedRateLimitingInterface = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](minRetry, maxRetry))
	context.AfterFunc(ctx, q.ShutDown)
	return q.ShutDown
}

func (q *queue) add(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.pending[key]
	p.added++
	q.pending[key] = p
	q.Add(key)
}

// work writes objects until ctx is done. A key is never in work twice at a time.
func (q *queue) work(ctx context.Context, by *Syncer) error {
	for {
		key, ended := q.Get()
		if ended || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		q.mu.Lock()
		added := q.pending[key].added
		q.mu.Unlock()
		err := by.writeObject(ctx, key, nil, nil)
		q.done(key, added, err)
		if err != nil && by.target.IsFinal(err) {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
}

// done ends the work on a key that was added so many times before.
func (q *queue) done(key string, added int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.Done(key)
	p := q.pending[key]
	p.err = err
	q.pending[key] = p
	if err != nil {
		q.AddRateLimited(key)
		return
	}
	q.Forget(key)
	if p.added == added {
		delete(q.pending, key)
	}
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.pending)
}

// isShort reports whether no key has failed, and no more are pending than can be in work at the same time.
func (q *queue) isShort() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range q.pending {
		if p.err != nil || len(q.pending) > workers {
			return false
		}
	}
	return true
}

// problem describes the keys that failed last, each error with the first of its keys, in an order that stays.
func (q *queue) problem() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	type kind struct {
		first string
		keys  int
	}
	kinds := map[string]kind{}
	for key, p := range q.pending {
		if p.err == nil {
			continue
		}
		of, known := kinds[p.err.Error()]
		if !known || key < of.first {
			of.first = key
		}
		of.keys++
		kinds[p.err.Error()] = of
	}
	var errs []error
	for _, of := range slices.SortedFunc(maps.Values(kinds), func(a, b kind) int { return strings.Compare(a.first, b.first) }) {
		more := ""
		switch {
		case len(errs) == maxReported:
			return errors.Join(append(errs, fmt.Errorf("and %d more errors", len(kinds)-maxReported))...)
		case of.keys > 1:
			more = fmt.Sprintf(" and %d more", of.keys-1)
		}
		errs = append(errs, fmt.Errorf("write %s%s in the main cluster: %w", of.first, more, q.pending[of.first].err))
	}
	return errors.Join(errs...)
}
