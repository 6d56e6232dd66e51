// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// written is a frameWriter that records what it writes, to a client that answers pings
// immediately unless it is stuck.
type written struct {
	client *client
	stuck  bool

	mu     sync.Mutex
	limits []int
	left   time.Time
	open   int // requests at GOAWAY
}

func (w *written) limit(streams int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limits = append(w.limits, streams)
}

func (w *written) ping() {
	if !w.stuck {
		w.client.pong()
	}
}

func (w *written) goAway() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left, w.open = time.Now(), w.client.see().open
}

// request is a request that takes a while and ends at the returned time.
func request(c *client, takes time.Duration) (answered <-chan time.Time) {
	answers := make(chan time.Time, 1)
	go func() {
		c.begin(context.Background())
		defer c.end()
		time.Sleep(takes)
		answers <- time.Now()
	}()
	return answers
}

// TestLeaveWaitsForTheNextRequest: an idle client gets GOAWAY during its next request.
func TestLeaveWaitsForTheNextRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		watch := request(c, time.Hour)
		time.Sleep(time.Minute)
		w := &written{client: c}
		began := time.Now()
		go c.leave(t.Context(), w)
		time.Sleep(700 * time.Millisecond)
		if !w.left.IsZero() {
			t.Error("GOAWAY was sent while the client may have had a request on its way")
		}
		next := request(c, 0)
		if answered := <-next; w.left.IsZero() || w.left.After(answered) || answered.Sub(began) > 710*time.Millisecond {
			t.Errorf("GOAWAY %s, answered %s after it began", w.left.Sub(began), answered.Sub(began))
		}
		if !slices.Equal(w.limits, []int{2}) {
			t.Errorf("limits were %v, want one more than is open", w.limits)
		}
		<-watch
	})
}

// TestLeaveWaitsUntilAllAreOpen: a client that sends requests continuously gets GOAWAY when
// it has as many open as it may.
func TestLeaveWaitsUntilAllAreOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		w := &written{client: c, stuck: true}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for ctx.Err() == nil {
				request(c, time.Millisecond)
				time.Sleep(2 * time.Millisecond)
			}
		}()
		time.Sleep(50 * time.Millisecond)
		began := time.Now()
		c.leave(t.Context(), w)
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("requests were paused for %s", took)
		}
		if len(w.limits) != 1 || w.open != w.limits[0] {
			t.Errorf("GOAWAY was sent with %d requests, the limits were %v", w.open, w.limits)
		}
		cancel()
		time.Sleep(time.Second) // the last requests end
	})
}

// TestLeaveOfAQuietClient: a client that waits for responses sends no more requests. One
// that is too busy to answer pings may, for a limited time.
func TestLeaveOfAQuietClient(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		stuck       bool
		least, most time.Duration
	}{
		"lively": {false, quietPeriod, quietPeriod + 2*settlePeriod},
		"stuck":  {true, longestPause, longestPause + 2*settlePeriod},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newClient()
				w := &written{client: c, stuck: test.stuck}
				began := time.Now()
				seen := make(chan struct{})
				go func() {
					defer close(seen)
					c.leave(t.Context(), w)
				}()
				synctest.Wait()
				answers := []<-chan time.Time{request(c, 0), request(c, 0), request(c, 0)}
				<-seen
				if took := time.Since(began); took < test.least || took > test.most {
					t.Errorf("requests were paused for %s", took)
				}
				if w.open != len(answers) {
					t.Errorf("GOAWAY was sent with %d requests open", w.open)
				}
				for _, answer := range answers {
					<-answer
				}
				if len(w.limits) != 1 || w.limits[0] != len(answers)+2*len(answers)+slack {
					t.Errorf("limits were %v", w.limits)
				}
			})
		})
	}
}

// TestLimitCoversRecentRequests: a client that hangs for a moment is not idle.
func TestLimitCoversRecentRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		for range 16 {
			request(c, time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond)
		w := &written{client: c}
		c.leave(t.Context(), w)
		if !slices.Equal(w.limits, []int{16 + slack}) {
			t.Errorf("limits were %v, want more than the 16 that were open lately", w.limits)
		}
		time.Sleep(3 * peakPeriod) // also a period without requests
		if peak := c.recentPeak(); peak > 16 {
			t.Errorf("the peak is %d", peak)
		}
		time.Sleep(2 * peakPeriod)
		if peak := c.recentPeak(); peak != 0 {
			t.Errorf("the peak is still %d", peak)
		}
	})
}
