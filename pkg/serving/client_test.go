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
// after a while unless it is stuck.
type written struct {
	client *client
	answer time.Duration

	mu     sync.Mutex
	stuck  bool
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
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stuck {
		time.AfterFunc(w.answer, w.client.pong)
	}
}

func (w *written) goAway() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left, w.open = time.Now(), w.client.see().open
}

// setStuck makes the client answer pings or not.
func (w *written) setStuck(stuck bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stuck = stuck
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
		c := newClient(1000)
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
	for name, test := range map[string]struct{ streams, limits int }{
		"lower limit":       {1000, 1},
		"limit of a server": {50, 0},
		"that limit, later": {130, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newClient(test.streams)
				w := &written{client: c, stuck: true}
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					for ctx.Err() == nil {
						if c.see().open < test.streams {
							request(c, time.Millisecond)
						}
						time.Sleep(2 * time.Millisecond)
					}
				}()
				time.Sleep(50 * time.Millisecond)
				began := time.Now()
				c.leave(t.Context(), w)
				if took := time.Since(began); took > 2*firstPause {
					t.Errorf("requests were paused for %s", took)
				}
				full := test.streams
				if len(w.limits) > 0 {
					full = w.limits[0]
				}
				if len(w.limits) != test.limits || w.open != full {
					t.Errorf("GOAWAY was sent with %d requests, the limits were %v", w.open, w.limits)
				}
				cancel()
				time.Sleep(time.Second) // the last requests end
			})
		})
	}
}

// TestLeaveOfAQuietClient: a client that waits for responses sends no more requests. One
// that is too busy to answer pings may, for a limited time.
func TestLeaveOfAQuietClient(t *testing.T) {
	t.Parallel()
	const requests = 3
	limited := []int{requests + slack}
	tests := map[string]struct {
		answer      time.Duration
		stuck       bool
		least, most time.Duration
		limits      []int
	}{
		"lively": {0, false, quietPeriod, quietPeriod + 2*settlePeriod, nil},
		"busy":   {300 * time.Millisecond, false, quietPings * 300 * time.Millisecond, (quietPings + 2) * 300 * time.Millisecond, limited},
		"stuck":  {0, true, longestPause, longestPause + 2*settlePeriod, limited},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newClient(1000)
				w := &written{client: c, answer: test.answer, stuck: test.stuck}
				began := time.Now()
				seen := make(chan struct{})
				go func() {
					defer close(seen)
					c.leave(t.Context(), w)
				}()
				synctest.Wait()
				var answers []<-chan time.Time
				for range requests {
					answers = append(answers, request(c, 0))
				}
				<-seen
				if took := time.Since(began); took < test.least || took > test.most {
					t.Errorf("requests were paused for %s", took)
				}
				if w.open != requests {
					t.Errorf("GOAWAY was sent with %d requests open", w.open)
				}
				for _, answer := range answers {
					<-answer
				}
				if !slices.Equal(w.limits, test.limits) {
					t.Errorf("limits were %v, want %v", w.limits, test.limits)
				}
				time.Sleep(test.answer) // the last pings are answered
			})
		})
	}
}

// TestLeaveCoversABurst: the limit is above the requests that a client on a busy machine has on their way.
func TestLeaveCoversABurst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClient(1000)
		w := &written{client: c, stuck: true}
		go func() {
			time.Sleep(firstPause + settlePeriod/2)
			w.setStuck(false)
			for range 16 {
				request(c, time.Millisecond)
			}
		}()
		c.leave(t.Context(), w)
		if w.open != 16 || len(w.limits) != 1 || w.limits[0] <= 16 {
			t.Errorf("GOAWAY was sent with %d requests, the limits were %v", w.open, w.limits)
		}
		time.Sleep(time.Second) // the last requests end
	})
}
