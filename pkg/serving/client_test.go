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

// written is a frameWriter that notes what it writes, to a client that answers
// pings at once unless it is stuck.
type written struct {
	client *client
	stuck  bool

	mu     sync.Mutex
	limits []int
	left   time.Time
	open   int // requests when the farewell came
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

func (w *written) farewell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left, w.open = time.Now(), w.client.see().open
}

// request is a request that takes a while; its answer is given at the returned time.
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

// TestSeeOffWaitsForTheNextRequest bids farewell to an idle client with its next
// request, before that is answered.
func TestSeeOffWaitsForTheNextRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		watch := request(c, time.Hour)
		time.Sleep(time.Minute)
		w := &written{client: c}
		began := time.Now()
		go c.seeOff(t.Context(), w)
		time.Sleep(700 * time.Millisecond)
		if !w.left.IsZero() {
			t.Error("farewell came while the client may have had a request on its way")
		}
		next := request(c, 0)
		if answered := <-next; w.left.IsZero() || w.left.After(answered) || answered.Sub(began) > 710*time.Millisecond {
			t.Errorf("farewell %s, answered %s after it began", w.left.Sub(began), answered.Sub(began))
		}
		if !slices.Equal(w.limits, []int{2}) {
			t.Errorf("limits were %v, want one more than is open", w.limits)
		}
		<-watch
	})
}

// TestSeeOffWaitsUntilAllAreIn has a client send requests whatever happens: it is
// bidden farewell when it has all that it may have.
func TestSeeOffWaitsUntilAllAreIn(t *testing.T) {
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
		c.seeOff(t.Context(), w)
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("requests were paused for %s", took)
		}
		if len(w.limits) != 1 || w.open != w.limits[0] {
			t.Errorf("farewell came with %d requests, the limits were %v", w.open, w.limits)
		}
		cancel()
		time.Sleep(time.Second) // the last requests end
	})
}

// TestSeeOffBelievesAQuietClient has clients wait for their answers: nothing more
// can come. It takes a client that is too busy to answer pings for one that may
// have more, but not for ever.
func TestSeeOffBelievesAQuietClient(t *testing.T) {
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
					c.seeOff(t.Context(), w)
				}()
				synctest.Wait()
				answers := []<-chan time.Time{request(c, 0), request(c, 0), request(c, 0)}
				<-seen
				if took := time.Since(began); took < test.least || took > test.most {
					t.Errorf("requests were paused for %s", took)
				}
				if w.open != len(answers) {
					t.Errorf("farewell came with %d requests open", w.open)
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

// TestLimitCoversWhatWasOpenLately does not take a client that hangs for a moment
// for one that has nothing to do.
func TestLimitCoversWhatWasOpenLately(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		for range 16 {
			request(c, time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond)
		w := &written{client: c}
		c.seeOff(t.Context(), w)
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
