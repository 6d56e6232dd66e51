// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	// importGap is added to the revision of the main cluster. It exceeds the number of writes there until the
	// target is open, and is small because a rollback raises that revision above annex's by writes, one each.
	importGap   = 2_000
	reopenPause = 100 * time.Millisecond
	// In lowestPause, or as long as CheckAlive takes, changes arrive that were sent before its response.
	lowestPause = 50 * time.Millisecond
)

// FollowOptions configure the end of Follow.
type FollowOptions struct {
	// CaughtUp is called once, when the target has all that the source had when Follow was called.
	CaughtUp func()
	// Prove is closed shortly before Switch. Proven is called once, when the target has all that the source had
	// then. From then on the silence of the watch means that there are no changes, because UntilDead checks it: an API
	// server that was cut off from its etcd sends none for seconds after it accepts writes again.
	Prove  <-chan struct{}
	Proven func()
	// Switch is closed once the source gets no new writes. From then on the watch cannot be opened again.
	Switch <-chan struct{}
	// The target opens after no change has arrived for Quiet since then.
	Quiet time.Duration
	// Lowest returns a revision above which resource versions of the target begin.
	Lowest func(ctx context.Context) (int64, error)
	// Opened is called once, when the target is open.
	Opened func()
	// Late changes are applied for Settle after that, or until the context is done, which is no error
	// then.
	Settle time.Duration
}

// ErrWatchLost means that the watch of the source ended after the switch, when it could not be opened
// again. If the target is not open yet, the source has to serve the resource again.
var ErrWatchLost = errors.New("the watch of the source was lost after the switch")

// LateError names objects with changes that reached the source after the switch, and that could not be
// applied because the objects at the target were written already.
type LateError DifferentError

// Error implements error.
func (e *LateError) Error() string {
	return fmt.Sprintf("late changes of %d objects were not applied, such as %s", e.Count, strings.Join(e.Objects, ", "))
}

// Follow applies changes of the source from one watch, and opens the target after the switch. It
// returns nil or a *LateError when it has settled. After an error, State tells whether the target is open; if it is not
// and Switch is closed, the source has to serve the resource again before another Follow.
func (i *Importer) Follow(ctx context.Context, f FollowOptions) error {
	t, err := i.begin(ctx, i.from)
	if err != nil {
		return err
	}
	f.CaughtUp, f.Proven = sync.OnceFunc(f.CaughtUp), sync.OnceFunc(f.Proven)
	s := &importing{term: t, FollowOptions: f}
	return t.repeat(ctx, f.Switch, func() error { return s.follow(ctx) })
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// importing is a Follow.
type importing struct {
	*term
	FollowOptions
	// proving is set once Prove was seen to be closed.
	proving bool
	// switched is the time at which Switch was found to be closed, and read the time at which Lowest returned lowest.
	// The target opens if there is no change for a while after that.
	switched, read time.Time
	lowest         int64
	pause          time.Duration
}

// follow follows one watch.
func (s *importing) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if isClosed(s.Switch) {
		return errWatchEnded
	}
	w, err := s.source.Watch(ctx, s.record.Applied)
	switch {
	case err != nil && isClosed(s.Switch):
		return fmt.Errorf("%w: %w", errWatchEnded, err)
	case err != nil:
		return err
	}
	if err := s.untilOpen(ctx, w); err != nil {
		return err
	}
	s.Opened()
	return newLate(s.term).settle(ctx, w, s.Settle)
}

// untilOpen applies changes until it has opened the target.
func (s *importing) untilOpen(ctx context.Context, w Watch) error {
	ctx, end := context.WithCancelCause(ctx)
	var checks sync.WaitGroup
	defer checks.Wait()
	defer end(nil)
	check := sync.OnceFunc(func() {
		checks.Go(func() { end(fmt.Errorf("%w: %w", errWatchEnded, w.UntilDead(ctx, s.Proven))) })
	})
	err := s.applyFrom(ctx, w, func() (bool, error) {
		if proven, err := s.prove(ctx); err != nil {
			return false, err
		} else if proven {
			check()
		}
		return s.step(ctx, w)
	})
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errWatchEnded) {
		return cause
	}
	return err
}

// step is called after each batch, and returns true when it has opened the target.
func (s *importing) step(ctx context.Context, w Watch) (bool, error) {
	if s.isCaughtUp() {
		s.CaughtUp()
	}
	if s.switched.IsZero() {
		if isClosed(s.Switch) {
			s.switched, s.eager, s.isSilent = time.Now(), true, true
		}
		return false, nil
	}
	if !s.record.Copied {
		return false, errWatchEnded // pages can no longer be read
	}
	switch now := time.Now(); {
	case now.Sub(s.switched) < s.Quiet || now.Sub(s.changed) < s.Quiet:
		return false, nil
	case !s.isCaughtUp():
		return false, fmt.Errorf("%w: it was opened too late to have caught up", errWatchEnded)
	case !s.read.IsZero() && now.Sub(s.read) < s.pause:
		return false, nil
	case s.read.IsZero() || s.changed.After(s.read):
		return false, s.beforeOpening(ctx, w)
	}
	return true, s.openAbove(ctx, max(s.lowest, s.record.Applied, s.current)+importGap)
}

// prove reports whether the watch has delivered what was written until Prove was closed.
func (s *importing) prove(ctx context.Context) (bool, error) {
	if !s.proving && isClosed(s.Prove) {
		now, err := s.source.Revision(ctx)
		if err != nil {
			return false, err
		}
		s.proving, s.began = true, max(s.began, now)
	}
	return s.proving && s.isCaughtUp(), nil
}

// beforeOpening reads Lowest, and checks that the silence of the watch means that nothing has changed.
func (s *importing) beforeOpening(ctx context.Context, w Watch) error {
	lowest, err := s.Lowest(ctx)
	if err != nil {
		return fmt.Errorf("read the revision of the main cluster: %w", err)
	}
	began := time.Now()
	if err := w.CheckAlive(ctx); err != nil {
		return fmt.Errorf("%w: %w", errWatchEnded, err)
	}
	s.lowest, s.read = lowest, time.Now()
	s.pause = max(lowestPause, s.read.Sub(began))
	return nil
}
