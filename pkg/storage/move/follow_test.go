// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// promptSource has a watch that answers each request for progress at once.
type promptSource struct {
	Source
	watch *promptWatch
}

func (s promptSource) Watch(context.Context, int64) (Watch, error) { return s.watch, nil }

type promptWatch struct {
	Watch
	current  int64
	events   chan Events
	requests int
	// most is the number of requests after which they fail.
	most int
}

func (w *promptWatch) Events() <-chan Events { return w.events }

func (w *promptWatch) RequestProgress(context.Context, int64) error {
	if w.requests++; w.requests > w.most {
		return errors.New("too many requests")
	}
	w.events <- Events{Complete: w.current, Current: w.current}
	return nil
}

// TestProgressRequests: a watch that answers at once is not requested to report its progress again at once.
func TestProgressRequests(t *testing.T) {
	t.Parallel()
	const duration = 10 * time.Second
	for name, tt := range map[string]struct {
		current     int64
		copied      bool
		eager       bool
		least, most int
	}{
		"caught up":               {current: 5, copied: true, least: 20, most: 41},
		"pages rest":              {current: 5, least: 20, most: 41},
		"older than the loop":     {current: 4, copied: true, least: 1000, most: 2001},
		"requests wait for it":    {current: 5, copied: true, eager: true, least: 1000, most: 2001},
		"pages rest, and it lags": {current: 4, least: 1000, most: 2001},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &promptWatch{current: tt.current, events: make(chan Events, 1), most: tt.most}
				resting := NewPace(1)
				resting.busy <- struct{}{}
				syncer := NewSyncer(promptSource{watch: w}, &slowTarget{}, nil)
				syncer.pace, syncer.eager = resting, tt.eager
				syncer.record, syncer.began = record{Applied: tt.current, Copied: tt.copied}, 5
				ctx, cancel := context.WithTimeout(t.Context(), duration)
				defer cancel()
				expect.Error(t, syncer.loop.follow(ctx, func() (bool, error) { return false, nil }), context.DeadlineExceeded.Error())
				if w.requests < tt.least {
					t.Errorf("%d requests in %s, want %d or more", w.requests, duration, tt.least)
				}
			})
		})
	}
}
