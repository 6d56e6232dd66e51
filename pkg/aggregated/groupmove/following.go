// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/annex-dev/annex/pkg/storage/move"
)

const (
	// quietPeriod is the time for which the main cluster must be silent after all requests go to annex. A
	// request that it accepted before takes a few milliseconds; later ones are late changes.
	quietPeriod = 250 * time.Millisecond
	// latePeriod bounds the time for which late changes are applied. They end earlier, as soon as the main cluster's
	// copy is frozen.
	latePeriod = time.Hour
)

// following runs the importers of a group, each with one watch of the main cluster. The first error of an importer
// whose resource is not open in annex ends all importers.
type following struct {
	*workers
	// proving is closed before the main cluster gets the routes to annex, and routed when it sends all requests
	// to annex.
	proving, routed chan struct{}
	// Each importer counts down caughtUp, proven, drained and opened.
	caughtUp, proven, drained, opened *latch

	mu   sync.Mutex
	late []error
}

func (m *moveIn) follow(ctx context.Context) *following {
	n := len(m.resources)
	f := &following{
		workers: newWorkers(ctx), proving: make(chan struct{}), routed: make(chan struct{}),
		caughtUp: newLatch(n), proven: newLatch(n), drained: newLatch(n), opened: newLatch(n),
	}
	m.workers = f.workers
	for _, of := range m.resources {
		f.run(func(ctx context.Context) error {
			isOpen, drained := false, sync.OnceFunc(f.drained.done)
			err := of.importer.Follow(ctx, move.FollowOptions{
				CaughtUp: f.caughtUp.done,
				Prove:    f.proving,
				Proven:   f.proven.done,
				Switch:   f.routed,
				Quiet:    quietPeriod,
				// Resources are opened together: before the first, all have every change.
				Lowest: func(ctx context.Context) (int64, error) {
					drained()
					if err := f.drained.wait(ctx); err != nil {
						return 0, err
					}
					return m.mainRevision(ctx)
				},
				Opened: func() {
					isOpen = true
					f.opened.done()
				},
				Settle: latePeriod,
			})
			if err == nil || !isOpen || errors.Is(err, context.Canceled) {
				return wrap(err, "follow %s of the main cluster", of.Name)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			f.late = append(f.late, wrap(err, "%s", of.Name))
			return nil
		})
	}
	return f
}

// endLate ends the watches, and returns what could not be applied after the switch.
func (f *following) endLate() []error {
	f.end()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.late
}

// workers copy the changes of a group, one worker per resource. The first error ends all.
type workers struct {
	ctx     context.Context
	stop    context.CancelCauseFunc
	running sync.WaitGroup
}

func newWorkers(ctx context.Context) *workers {
	w := &workers{}
	w.ctx, w.stop = context.WithCancelCause(ctx)
	return w
}

func (w *workers) run(do func(ctx context.Context) error) {
	w.running.Go(func() {
		if err := do(w.ctx); err != nil && !errors.Is(err, context.Canceled) {
			w.stop(err)
		}
	})
}

// guard calls do with a context that ends with the workers or with preparing, and returns the cause of that end.
func (w *workers) guard(preparing context.Context, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(w.ctx)
	defer cancel(nil)
	defer context.AfterFunc(preparing, func() { cancel(context.Cause(preparing)) })()
	err := do(ctx)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	return err
}

func (w *workers) end() {
	if w != nil {
		w.stop(context.Canceled)
		w.running.Wait()
	}
}

type latch struct {
	mu   sync.Mutex
	left int
	open chan struct{}
}

func newLatch(n int) *latch { return &latch{left: n, open: make(chan struct{})} }

func (l *latch) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left--; l.left == 0 {
		close(l.open)
	}
}

func (l *latch) wait(ctx context.Context) error {
	select {
	case <-l.open:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
