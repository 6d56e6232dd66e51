// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// workers is the number of objects that a Syncer writes at the same time.
	workers = 16
	// retryPause is between the end of a watch, or a page that could not be read, and the next attempt.
	retryPause = 500 * time.Millisecond
	// verifyAgain is the number of times that objects are compared again which differ while a Syncer writes them.
	verifyAgain = 10
)

// Target has a copy of a Source's objects. They are written one by one.
type Target interface {
	replica
	// Write makes an object equal to the source's. from and to are the objects that were compared, nil if both are to be
	// read. It is called again after an error.
	Write(ctx context.Context, key string, from, to *Object) error
	// IsFinal reports whether an error of Write ends the Syncer.
	IsFinal(err error) bool
	// Written returns how many writes were made.
	Written() int64
}

// Syncer makes a Target equal to a Source, and follows it. Nothing is recorded: a Syncer compares all objects first, so
// it can be replaced by another one at any time. The pages of its Source are of the present.
type Syncer struct {
	loop
	compared
	target Target
	queue  *queue
	// writes paces the writes of all Syncers that share it. It may be nil.
	writes *Pace
	// wanted is the revision that Drain waits for, and applied the one that all objects have, 0 before they were copied.
	wanted, applied atomic.Int64

	mu       sync.Mutex
	progress Progress
	// failed is the last error of a page or a watch, and failedAt the cursor then.
	failed   error
	failedAt string
}

// NewSyncer returns a Syncer. It does nothing before Run. Syncers of the same target share the Pace of their writes, which
// may be nil.
func NewSyncer(from Source, to Target, writes *Pace) *Syncer {
	s := &Syncer{target: to, queue: newQueue(), writes: writes}
	s.loop = loop{sides: sides{source: from, target: to}, writer: s, restarts: &atomic.Int64{}, raise: make(chan struct{}, 1)}
	s.report = func(p Progress) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.progress = p
	}
	return s
}

// Progress returns how far the Syncer is.
func (s *Syncer) Progress() Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.progress
	p.Pending, p.Written = int64(s.queue.len()), s.target.Written()
	p.Copied = max(0, p.Copied-p.Pending)
	p.Total = max(p.Total, p.Copied)
	return p
}

// Problem returns why the Syncer does not advance, or nil. It tries again until the context of Run is done.
func (s *Syncer) Problem() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.failed, s.queue.problem())
}

// Again writes an object once more, because what it depends on has changed.
func (s *Syncer) Again(key string) { s.queue.add(key) }

// Run copies all objects, and then follows the source until ctx is done, whose error it returns, or until an error of
// the Target is final. It calls caughtUp once, when the target lags by no more than the writes in flight.
func (s *Syncer) Run(ctx context.Context, caughtUp func()) error {
	group, running := errgroup.WithContext(ctx)
	end := s.queue.start(running)
	defer end()
	for range workers {
		group.Go(func() error { return s.queue.work(running, s) })
	}
	group.Go(func() error { return s.follow(running, sync.OnceFunc(caughtUp)) })
	return group.Wait()
}

// follow copies and follows, again after each error.
func (s *Syncer) follow(ctx context.Context, caughtUp func()) error {
	for gap := true; ; { // nothing was compared before
		var err error
		if gap {
			err = s.restart(ctx)
		}
		if err == nil {
			err = s.loop.follow(ctx, func() (bool, error) { s.advanced(caughtUp); return false, nil })
			gap = errors.Is(err, ErrCompacted)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.mu.Lock()
		s.failed, s.failedAt = err, s.record.Cursor
		s.mu.Unlock()
		if err := pause(ctx, retryPause); err != nil {
			return err
		}
	}
}

func (s *Syncer) restart(ctx context.Context) (err error) {
	if s.total, err = s.source.Count(ctx); err != nil {
		return err
	}
	return s.loop.restart(ctx)
}

// advanced is called after each batch.
func (s *Syncer) advanced(caughtUp func()) {
	s.began = max(s.began, s.wanted.Load())
	applied := int64(0)
	if s.record.Copied {
		applied = s.record.Applied
	}
	s.applied.Store(applied)
	if s.isCaughtUp() && s.queue.isShort() {
		caughtUp()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record.Copied || s.record.Cursor != s.failedAt {
		s.failed = nil
	}
}

// write implements writer. What was compared is written at once, the rest by the workers.
func (s *Syncer) write(ctx context.Context, changes []change) error {
	writing, ctx := errgroup.WithContext(ctx)
	writing.SetLimit(workers)
	for _, c := range changes {
		if !c.put || c.to == nil {
			s.queue.add(c.Key)
			continue
		}
		writing.Go(func() error {
			if err := s.writeObject(ctx, c.Key, &c.Object, c.to); err != nil {
				s.queue.add(c.Key)
			}
			return ctx.Err()
		})
	}
	return writing.Wait()
}

// writeObject writes an object at the Pace of writes. Those that Drain waits for are not delayed: clients wait, too.
func (s *Syncer) writeObject(ctx context.Context, key string, from, to *Object) error {
	write := func() error { return s.target.Write(ctx, key, from, to) }
	if s.wanted.Load() > 0 {
		return write()
	}
	return s.writes.Do(ctx, write)
}

// isFull implements writer.
func (s *Syncer) isFull() bool { return s.queue.len() >= s.queue.most }

// Drain returns when the target has everything that the source has. Run has to run, and the source must not be written
// any more. If ctx ends before, the error names what is missing.
func (s *Syncer) Drain(ctx context.Context) error {
	frozen, err := s.source.Revision(ctx)
	if err != nil {
		return err
	}
	s.wanted.Store(frozen)
	defer s.wanted.Store(0)
	select {
	case s.raise <- struct{}{}:
	default:
	}
	for s.applied.Load() < frozen || s.queue.len() > 0 {
		if err := pause(ctx, eagerInterval); err != nil {
			return errors.Join(fmt.Errorf("copy the last changes, of which %d are left: %w", s.queue.len(), err), s.Problem())
		}
	}
	return nil
}

// Verify compares all objects of both sides, as they are at present. Run runs meanwhile, so those that differ are compared
// again for some seconds. It returns a *DifferentError if objects differ.
func (s *Syncer) Verify(ctx context.Context) error {
	return s.verify(ctx, s.sides, verifyAgain, func(context.Context) (ofFrom, ofTo int64, err error) { return 0, 0, nil })
}
