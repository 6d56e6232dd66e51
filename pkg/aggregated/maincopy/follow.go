// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/storage/move"
)

const (
	// progressInterval is how often a Syncer asks for the progress of its watch, and eagerInterval the
	// same during Drain.
	progressInterval = time.Second
	eagerInterval    = 10 * time.Millisecond
)

// follow queues the objects that change in annex. It returns move.ErrCompacted if changes were missed.
func (s *Syncer) follow(ctx context.Context) error {
	for {
		err := s.watch(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, move.ErrCompacted) {
			return err
		}
		s.set(func() { s.failed = err })
		if !pause(ctx) {
			return ctx.Err()
		}
	}
}

// Drain returns when the copy has everything that annex has. Run has to run, and annex must not
// accept writes of the resource any more. If ctx ends before, the error names what is missing.
func (s *Syncer) Drain(ctx context.Context) error {
	if err := s.drain(ctx); err != nil {
		return fmt.Errorf("copy the last changes of %s to the main cluster: %w", s.resource.Name, errors.Join(err, s.Problem()))
	}
	return nil
}

func (s *Syncer) drain(ctx context.Context) error {
	frozen, err := s.annex.Revision(ctx)
	if err != nil {
		return err
	}
	s.set(func() { s.wanted = frozen })
	if err := s.until(ctx, func() bool { return s.walked && s.seen >= frozen }); err != nil {
		return err
	}
	return s.queue.idle(ctx, 0)
}

// watch queues what changes since the last revision that was seen, until the watch ends.
func (s *Syncer) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen, _, _ := s.revisions()
	w, err := s.annex.Watch(ctx, seen)
	if err != nil {
		return err
	}
	var asked time.Time
	for {
		seen, wanted, changed := s.revisions()
		interval := progressInterval
		if seen < wanted {
			interval = eagerInterval
		}
		if time.Since(asked) >= interval {
			if err := w.RequestProgress(ctx, wanted); err != nil {
				return err
			}
			asked = time.Now()
		}
		timer := time.NewTimer(interval)
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-changed: // maybe Drain was called
		case <-timer.C:
		case events, open := <-w.Events():
			if err = s.handle(events); !open {
				err = errors.New("the watch of annex ended")
			}
		}
		timer.Stop()
		if err != nil {
			return err
		}
	}
}

// revisions returns up to which one all changes are queued, which one Drain waits for, and what is closed
// when either changes.
func (s *Syncer) revisions() (seen, wanted int64, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen, s.wanted, s.progress
}

func (s *Syncer) handle(events move.Events) error {
	if events.Err != nil {
		return fmt.Errorf("watch %s in annex: %w", s.resource.Name, events.Err)
	}
	complete := events.Complete
	for _, change := range events.Changes {
		namespace, name, err := cache.SplitMetaNamespaceKey(change.Key)
		if err != nil {
			return fmt.Errorf("watch %s in annex: %w", s.resource.Name, err)
		}
		s.queue.add(key{namespace, name})
		complete = max(complete, change.Revision) // the changes of one revision come together
	}
	s.set(func() { s.seen, s.failed = max(s.seen, complete), nil })
	return nil
}
