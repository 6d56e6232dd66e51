// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

const (
	// progressInterval is the time between requests for the progress of a watch.
	progressInterval = 250 * time.Millisecond
	// eagerInterval is the same while the progress is waited for: before the target has what the source had when the loop
	// began, and while requests of clients wait for the switch. It is also the interval at which a page that has to wait is tried again.
	eagerInterval = 5 * time.Millisecond
	// saveInterval is the time between records that nothing has changed.
	saveInterval = 5 * time.Second
)

var errWatchEnded = errors.New("the watch of the source ended")

// loop copies the objects of a Source, and follows it.
type loop struct {
	sides
	writer   writer
	limit    *rate.Limiter
	report   func(Progress)
	restarts *atomic.Int64
	total    int64

	// record is the record of the target. Applied may be later than in the one that is saved.
	record, saved record
	// eager is set while requests wait for the switch, and isSilent once progress must not be requested.
	eager, isSilent bool
	// changed is the time at which the last change arrived, and requested that of the last request for progress.
	changed, requested time.Time
	// began is the revision of the source when the loop began, and current the highest one known.
	began, current int64
	// raise ends the wait of next when began is to be raised.
	raise chan struct{}
}

// writer writes the changes of a loop to its target.
type writer interface {
	// write writes changes with the record of the loop, if the target keeps it.
	write(ctx context.Context, changes []change) error
	// isFull reports whether pages have to wait, because the target has too many changes that are not written.
	isFull() bool
}

// restart returns the cursor to the first key, because changes were missed.
func (l *loop) restart(ctx context.Context) error {
	now, err := l.source.Revision(ctx)
	if err != nil {
		return err
	}
	l.restarts.Add(1)
	l.record.Applied, l.record.Cursor, l.record.Copied = now, "", false
	l.record.Objects, l.record.Bytes = 0, 0
	return l.save(ctx, nil)
}

// save writes changes with the record.
func (l *loop) save(ctx context.Context, changes []change) error {
	if err := l.writer.write(ctx, changes); err != nil {
		return err
	}
	l.saved = l.record
	l.reportProgress()
	return nil
}

func (l *loop) reportProgress() {
	l.report(Progress{Total: l.total, Copied: l.saved.Objects, Bytes: l.saved.Bytes, Lag: max(0, l.current-l.record.Applied)})
}

// isCaughtUp reports whether the target has all that the source had when the loop began.
func (l *loop) isCaughtUp() bool { return l.record.Copied && l.record.Applied >= l.began }

// follow applies changes and copies pages until done, which is called after each batch, or until the watch ends.
func (l *loop) follow(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := l.source.Watch(ctx, l.record.Applied)
	if err != nil {
		return err
	}
	return l.applyFrom(ctx, w, done)
}

// applyFrom is follow with a watch.
func (l *loop) applyFrom(ctx context.Context, w Watch, done func() (bool, error)) (err error) {
	defer func() {
		if err != nil {
			l.record = l.saved // the next watch delivers again what was not written
		}
	}()
	b := &batch{loop: l}
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
		copying := !l.record.Copied && !aged && l.pace.isRested() && !l.writer.isFull()
		received, err := l.receive(ctx, w, b, copying)
		switch {
		case err != nil:
			return err
		case received:
			aged = false
		case !copying:
			l.reportProgress()
		default:
			if err := l.copyPage(ctx, b); errors.Is(err, ErrCompacted) {
				aged = true // the page can be read at a later revision
			} else if err != nil {
				return err
			}
		}
	}
}

// receive applies the responses of the watch that have arrived. It waits for the first one, unless poll is set.
func (l *loop) receive(ctx context.Context, w Watch, b *batch, poll bool) (received bool, err error) {
	for {
		events, ok, err := l.next(ctx, w, poll || received)
		if err == nil && !ok {
			return received, b.flush(ctx, false)
		}
		if err == nil {
			err = l.apply(ctx, b, events)
		}
		if err != nil {
			return received, err
		}
		received = true
	}
}

// next returns a response of the watch, if there is one. Unless poll is set it waits for at most the interval, and requests
// progress, so that the applied revision stays recent if nothing changes. etcd responds within a millisecond, so the time of
// the last request bounds the next one.
func (l *loop) next(ctx context.Context, w Watch, poll bool) (events Events, ok bool, err error) {
	if poll {
		select {
		case events, ok = <-w.Events():
			return events, true, checkOpen(ctx, ok)
		default:
			return Events{}, false, nil
		}
	}
	if err := l.requestProgress(ctx, w); err != nil {
		return Events{}, false, err
	}
	interval := progressInterval
	if l.eager || !l.isCaughtUp() && !l.writer.isFull() {
		interval = eagerInterval
	}
	select {
	case events, ok = <-w.Events():
		return events, true, checkOpen(ctx, ok)
	case <-time.After(interval):
	case <-l.raise:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return Events{}, false, err
}

// requestProgress requests the progress of the watch once the interval since the last request is over.
func (l *loop) requestProgress(ctx context.Context, w Watch) error {
	interval, wanted := progressInterval, int64(0)
	if l.record.Applied < l.began {
		wanted = l.began
	}
	if l.eager || wanted > 0 {
		interval = eagerInterval
	}
	if l.isSilent || time.Since(l.requested) < interval {
		return nil
	}
	l.requested = time.Now()
	return w.RequestProgress(ctx, wanted)
}

// checkOpen returns why a watch ended that is not open.
func checkOpen(ctx context.Context, open bool) error {
	switch {
	case open:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return errWatchEnded
}

// apply adds the changes of a watch to the batch.
func (l *loop) apply(ctx context.Context, b *batch, events Events) error {
	switch {
	case errors.Is(events.Err, ErrCompacted):
		return events.Err
	case events.Err != nil:
		return fmt.Errorf("%w: %w", errWatchEnded, events.Err)
	}
	l.current = max(l.current, events.Current)
	if len(events.Changes) > 0 {
		l.changed = time.Now()
	}
	for _, event := range events.Changes {
		if !l.record.Copied && event.Key > l.record.Cursor {
			continue // it will be copied
		}
		l.complete(event.Revision - 1)
		c, err := l.decode(ctx, event)
		if err != nil {
			return err
		}
		if err := b.add(ctx, c); err != nil {
			return err
		}
	}
	l.complete(events.Complete)
	return nil
}

func (l *loop) decode(ctx context.Context, event Change) (change, error) {
	if event.Deleted {
		return change{Object: Object{Key: event.Key}}, nil
	}
	decoded, _, err := l.compare(ctx, event.Object, nil)
	return change{Object: decoded, put: true}, err
}
