// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxQueued is how many keys the comparison of all objects may be ahead of the writes.
	maxQueued = 4000

	minRetry, maxRetry = 50 * time.Millisecond, 10 * time.Second

	// A problem names at most maxReported different errors.
	maxReported = 3
)

// key identifies an object of a resource.
type key struct{ namespace, name string }

// String is the key in the order of a list: as etcd's keys.
func (k key) String() string {
	if k.namespace == "" {
		return k.name
	}
	return k.namespace + "/" + k.name
}

// failure is the last error of a key.
type failure struct {
	err   error
	delay time.Duration
	due   time.Time
}

// queue holds the keys to compare. A key is never handled twice at the same time.
type queue struct {
	mu      sync.Mutex
	changed chan struct{} // closed at every change
	ready   []key
	queued  map[key]bool
	working map[key]bool
	failed  map[key]failure
}

func newQueue() *queue {
	return &queue{changed: make(chan struct{}), queued: map[key]bool{}, working: map[key]bool{}, failed: map[key]failure{}}
}

func (q *queue) notify() {
	close(q.changed)
	q.changed = make(chan struct{})
}

func (q *queue) add(k key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.put(k)
	q.notify()
}

func (q *queue) put(k key) {
	if q.queued[k] {
		return
	}
	q.queued[k] = true
	if !q.working[k] {
		q.ready = append(q.ready, k)
	}
}

// addWhenShort waits until the queue is short.
func (q *queue) addWhenShort(ctx context.Context, k key) error {
	err := q.until(ctx, func() bool { return len(q.queued) < maxQueued })
	if err == nil {
		q.add(k)
	}
	return err
}

// get returns the next key. Failed ones return when they are due.
func (q *queue) get(ctx context.Context) (key, error) {
	var next key
	err := q.until(ctx, func() bool {
		now := time.Now()
		for k, failed := range q.failed {
			if !failed.due.After(now) && !q.working[k] {
				q.put(k)
			}
		}
		if len(q.ready) == 0 {
			return false
		}
		next, q.ready = q.ready[0], q.ready[1:]
		delete(q.queued, next)
		q.working[next] = true
		return true
	})
	return next, err
}

// done ends the work on a key. It is tried again after an error.
func (q *queue) done(k key, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.working, k)
	if q.queued[k] {
		q.ready = append(q.ready, k)
	}
	if err != nil {
		delay := min(max(2*q.failed[k].delay, minRetry), maxRetry)
		q.failed[k] = failure{err: err, delay: delay, due: time.Now().Add(delay)}
	} else {
		delete(q.failed, k)
	}
	q.notify()
}

// len returns the number of keys that are queued, in work or failed.
func (q *queue) len() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return int64(len(q.queued) + len(q.working) + len(q.failed))
}

// idle returns when at most some keys are queued or in work, and none failed.
func (q *queue) idle(ctx context.Context, atMost int) error {
	if err := q.until(ctx, func() bool { return len(q.queued)+len(q.working) <= atMost && len(q.failed) == 0 }); err != nil {
		return errors.Join(err, q.problem())
	}
	return nil
}

// problem describes the keys that failed last, each error with the first of its keys, in an order that stays.
func (q *queue) problem() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	type kind struct {
		first key
		keys  int
	}
	kinds := map[string]kind{}
	for k, failed := range q.failed {
		text := failed.err.Error()
		of, known := kinds[text]
		if !known || k.String() < of.first.String() {
			of.first = k
		}
		of.keys++
		kinds[text] = of
	}
	var errs []error
	for _, of := range slices.SortedFunc(maps.Values(kinds), func(a, b kind) int { return strings.Compare(a.first.String(), b.first.String()) }) {
		more := ""
		switch {
		case len(errs) == maxReported:
			return errors.Join(append(errs, fmt.Errorf("and %d more errors", len(kinds)-maxReported))...)
		case of.keys > 1:
			more = fmt.Sprintf(" and %d more", of.keys-1)
		}
		errs = append(errs, fmt.Errorf("write %s%s in the main cluster: %w", of.first, more, q.failed[of.first].err))
	}
	return errors.Join(errs...)
}

// until returns when a condition holds. It is called with the lock.
func (q *queue) until(ctx context.Context, condition func() bool) error {
	for {
		q.mu.Lock()
		if condition() {
			q.mu.Unlock()
			return nil
		}
		changed, retry := q.changed, time.NewTimer(q.nextRetry())
		q.mu.Unlock()
		select {
		case <-ctx.Done():
			retry.Stop()
			return ctx.Err()
		case <-changed:
		case <-retry.C:
		}
		retry.Stop()
	}
}

// nextRetry is when the first failed key is due.
func (q *queue) nextRetry() time.Duration {
	next := maxRetry
	for k, failed := range q.failed {
		if !q.working[k] {
			next = min(next, time.Until(failed.due))
		}
	}
	return max(next, time.Millisecond)
}
