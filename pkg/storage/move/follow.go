// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// progressInterval is how often a Mover asks for the progress of its watch while it waits.
	progressInterval = 250 * time.Millisecond
	// eagerInterval is the same before it has caught up, and while requests wait for the switch.
	eagerInterval = 5 * time.Millisecond
	// saveInterval is how often it is recorded that nothing has changed.
	saveInterval = 5 * time.Second
)

var errWatchEnded = errors.New("the watch of the source ended")

// run applies changes and copies pages until done, which is called after each batch.
func (t *term) run(ctx context.Context, done func() (bool, error)) error {
	if t.record.Phase != "" {
		return ErrSwitched
	}
	for {
		err := t.follow(ctx, done)
		if !errors.Is(err, ErrCompacted) {
			return err
		}
		if err := t.restart(ctx); err != nil {
			return err
		}
	}
}

// restart returns the cursor to the first key, because changes were missed.
func (t *term) restart(ctx context.Context) error {
	now, err := t.source.Revision(ctx)
	if err != nil {
		return err
	}
	t.restarts.Add(1)
	t.record.Applied, t.record.Cursor, t.record.Copied = now, "", false
	t.record.Objects, t.record.Bytes = 0, 0
	return t.save(ctx)
}

// follow does what run does until the watch ends.
func (t *term) follow(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := t.source.Watch(ctx, t.record.Applied)
	if err != nil {
		return err
	}
	return t.applyFrom(ctx, w, done)
}

// applyFrom does what run does until the watch ends.
func (t *term) applyFrom(ctx context.Context, w Watch, done func() (bool, error)) error {
	b := &batch{term: t}
	savedAt, aged := time.Now(), false
	for {
		if time.Since(savedAt) > saveInterval {
			if err := b.flush(ctx, true); err != nil {
				return err
			}
			savedAt = time.Now()
		}
		if finished, err := done(); err != nil {
			return err
		} else if finished {
			return b.flush(ctx, true)
		}
		copying := !t.record.Copied && !aged && t.pace.isRested()
		received, err := t.receive(ctx, w, b, copying)
		switch {
		case err != nil:
			return err
		case received:
			aged = false
		case !copying:
			t.reportProgress()
		default:
			if err := t.copyPage(ctx, b); errors.Is(err, ErrCompacted) {
				aged = true // the page can be read at a later revision
			} else if err != nil {
				return err
			}
		}
	}
}

// receive applies the next responses of the watch. It waits for one, unless poll is set.
func (t *term) receive(ctx context.Context, w Watch, b *batch, poll bool) (received bool, err error) {
	if !poll {
		events, ok, err := t.wait(ctx, w)
		if err != nil || !ok {
			return false, err
		}
		if err := t.apply(ctx, b, events); err != nil {
			return false, err
		}
		received = true
	}
	for {
		select {
		case events, ok := <-w.Events():
			if !ok {
				return received, ended(ctx)
			}
			if err := t.apply(ctx, b, events); err != nil {
				return received, err
			}
			received = true
		default:
			return received, b.flush(ctx, false)
		}
	}
}

// wait waits for a response, for at most the interval. It asks for progress, so that the applied
// revision stays recent if nothing changes.
func (t *term) wait(ctx context.Context, w Watch) (Events, bool, error) {
	if err := t.requestProgress(ctx, w); err != nil {
		return Events{}, false, err
	}
	interval := progressInterval
	if t.eager || !t.isCaughtUp() {
		interval = eagerInterval
	}
	timeout := time.NewTimer(interval)
	defer timeout.Stop()
	select {
	case events, ok := <-w.Events():
		if !ok {
			return events, false, ended(ctx)
		}
		return events, true, nil
	case <-timeout.C:
		return Events{}, false, nil
	case <-ctx.Done():
		return Events{}, false, context.Cause(ctx)
	}
}

func (t *term) requestProgress(ctx context.Context, w Watch) error {
	switch {
	case t.isSilent:
		return nil
	case t.record.Applied < t.began:
		return w.RequestProgress(ctx, t.began)
	}
	return w.RequestProgress(ctx, 0)
}

func ended(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errWatchEnded
}

// apply adds the changes of a watch to the batch.
func (t *term) apply(ctx context.Context, b *batch, events Events) error {
	switch {
	case errors.Is(events.Err, ErrCompacted):
		return events.Err
	case events.Err != nil:
		return fmt.Errorf("%w: %w", errWatchEnded, events.Err)
	}
	t.current = max(t.current, events.Current)
	if len(events.Changes) > 0 {
		t.changed = time.Now()
	}
	for _, event := range events.Changes {
		if !t.record.Copied && event.Key > t.record.Cursor {
			continue // it will be copied
		}
		b.complete(event.Revision - 1)
		c, err := t.decode(ctx, event)
		if err != nil {
			return err
		}
		if err := b.add(ctx, c); err != nil {
			return err
		}
	}
	b.complete(events.Complete)
	return nil
}

func (t *term) decode(ctx context.Context, event Change) (change, error) {
	if event.Deleted {
		return change{key: event.Key}, nil
	}
	plain, err := t.source.Decode(ctx, event.Object)
	return change{key: event.Key, plain: plain, put: true}, err
}
