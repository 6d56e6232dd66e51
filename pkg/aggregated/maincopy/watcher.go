// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/storage/move"
)

// watcher is a move.Watch. It ends with its context.
type watcher struct {
	source     *Source
	connection *connection
	ctx        context.Context
	cancel     context.CancelFunc
	events     chan move.Events
	probes     sync.WaitGroup

	mu sync.Mutex
	// delivered is a revision up to which all changes were delivered.
	delivered int64
	// pending is the result of a probe that waits for a change to be delivered.
	pending result
	probing bool
	// heard is the last time at which delivered became known without a change. failed is the time of the last
	// failed probe.
	heard, failed time.Time
}

// Events implements move.Watch.
func (w *watcher) Events() <-chan move.Events { return w.events }

func (w *watcher) run(s *stream) {
	defer close(w.events)
	defer w.end()
	stop := context.AfterFunc(w.ctx, s.close)
	defer func() {
		if stop() {
			s.close()
		}
	}()
	for {
		events, err := s.next()
		if errors.Is(err, io.EOF) || w.ctx.Err() != nil {
			return
		}
		events.Err = err
		if !w.send(events) || err != nil {
			return
		}
		if known := w.advance(events); known > events.Complete && !w.send(move.Events{Complete: known, Current: known}) {
			return
		}
	}
}

func (w *watcher) end() {
	w.mu.Lock()
	w.cancel() // after that none begins
	w.mu.Unlock()
	w.probes.Wait()
}

func (w *watcher) send(events move.Events) bool {
	select {
	case w.events <- events:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// advance records what was delivered, and returns up to which revision that is complete.
func (w *watcher) advance(events move.Events) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delivered = max(w.delivered, events.Complete)
	if len(events.Changes) == 0 {
		w.heard = time.Now()
	}
	return w.resolve()
}

// resolve applies the result of a probe once its last change was delivered. w.mu is locked.
func (w *watcher) resolve() int64 {
	if w.pending.complete > 0 && w.delivered >= w.pending.last {
		w.delivered, w.heard = max(w.delivered, w.pending.complete), time.Now()
		w.pending = result{}
	}
	return w.delivered
}

// RequestProgress implements move.Watch. It returns before there is progress.
func (w *watcher) RequestProgress(_ context.Context, wanted int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	recent := wanted <= w.delivered && now.Sub(w.heard) < progressInterval
	if recent || w.probing || w.pending.complete > 0 || now.Sub(w.failed) < probePause || w.ctx.Err() != nil {
		return nil
	}
	w.probing = true
	after := w.delivered
	w.probes.Go(func() { w.probe(after) })
	return nil
}

// probe opens a second watch, and uses its result.
func (w *watcher) probe(after int64) {
	found, err := w.source.probe(w.ctx, after)
	if err != nil {
		klog.FromContext(w.ctx).V(4).Info("A probe of the main cluster failed", "resource", w.source.resource, "err", err)
	}
	w.mu.Lock()
	w.probing = false
	if err != nil {
		w.failed = time.Now()
		w.mu.Unlock()
		return
	}
	w.pending = found
	known := w.resolve()
	w.mu.Unlock()
	// All changes up to it were sent before.
	w.send(move.Events{Complete: known, Current: known})
}
