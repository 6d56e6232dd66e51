// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"math"
	"sync"
	"time"
)

const (
	// settlePeriod is how long requests are paused before it is known how many
	// come: those that were handled end meanwhile.
	settlePeriod = 20 * time.Millisecond
	// quietPeriod without a request says that the client waits for answers, unless
	// it is too busy to do anything: it must have answered quietPings as well.
	quietPeriod = 100 * time.Millisecond
	quietPings  = 3
	// pingInterval is the time between two pings, at the least.
	pingInterval = 10 * time.Millisecond
	// longestPause bounds what it costs requests to be paused.
	longestPause = time.Second
	// longestIdle bounds the wait for the next request of an idle client.
	longestIdle = time.Second
	// peakPeriod is for how long at least it counts that many requests were open.
	peakPeriod = 10 * time.Second
	// slack is how many requests more than are expected may be on their way inside
	// the client.
	slack = 4
)

// client is what is known of the other side of a connection: its requests.
type client struct {
	asked chan struct{}

	mu     sync.Mutex
	seen   sight
	paused chan struct{} // closed when requests may go on, nil if they may

	// peak is the most requests that were open at once in the current period,
	// formerPeak in the one before.
	peak, formerPeak int
	period           time.Time
}

// sight is what was seen of a client up to now.
type sight struct {
	// open requests are being handled or paused, begun ones came ever.
	open, begun int
	latest      time.Time // when the last one came
	pongs       int       // pings that were answered
	change      chan struct{}
}

func (s sight) quiet() bool { return time.Since(s.latest) >= quietPeriod }

func newClient() *client {
	now := time.Now()
	return &client{asked: make(chan struct{}, 1), seen: sight{latest: now, change: make(chan struct{})}, period: now}
}

// see returns what is known now; change is closed when that changes.
func (c *client) see() sight {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

// changed tells who waits for that. It needs the lock.
func (c *client) changed() {
	close(c.seen.change)
	c.seen.change = make(chan struct{})
}

// begin counts a request in, and waits while requests are paused.
func (c *client) begin(ctx context.Context) {
	c.mu.Lock()
	c.seen.open++
	c.seen.begun++
	c.seen.latest = time.Now()
	c.countPeak()
	c.changed()
	paused := c.paused
	c.mu.Unlock()
	if paused == nil {
		return
	}
	select {
	case <-ctx.Done():
	case <-paused:
	}
}

// countPeak notes how many requests are open at once. It needs the lock.
func (c *client) countPeak() {
	if now := time.Now(); now.Sub(c.period) > peakPeriod {
		c.formerPeak, c.peak, c.period = c.peak, 0, now
	}
	c.peak = max(c.peak, c.seen.open)
}

// recentPeak is the most requests that were open at once lately.
func (c *client) recentPeak() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.countPeak()
	return max(c.peak, c.formerPeak)
}

// pong notes that the client answered a ping.
func (c *client) pong() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen.pongs++
	c.changed()
}

// end counts a request out.
func (c *client) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen.open--
}

// pause has requests that come from now on wait until resume is called.
func (c *client) pause() (resume func()) {
	paused := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = paused
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.paused = nil
		close(paused)
	}
}

// ask has the client's connection closed for new requests some time soon.
func (c *client) ask() {
	select {
	case c.asked <- struct{}{}:
	default: // it was asked already
	}
}

// frameWriter writes frames to the client.
type frameWriter interface {
	// limit sets how many streams the client may have open.
	limit(streams int)
	ping()
	farewell()
}

// seeOff bids the client farewell at a moment at which that harms none of its
// requests, or after a while.
//
// A farewell that has reached the client makes its connection unusable for those
// requests, too, that the client has assigned to it and not sent yet. Go's client
// cannot send them elsewhere if they have a body. What the server can do is to
// limit the client to a few streams more than it needs, and wait until it has them
// all: then there is none in between, and what comes next goes elsewhere already.
// A client that does not need them says so by sending no more.
func (c *client) seeOff(ctx context.Context, frames frameWriter) {
	defer c.pause()()
	defer frames.farewell()
	// Nobody's requests wait while none comes.
	if seen := c.see(); seen.quiet() && c.await(ctx, frames, math.MaxInt) {
		seen = c.see()
		frames.limit(seen.open + 1)
		pass(ctx, longestIdle, seen.change)
		return
	}
	before := c.see().begun
	pass(ctx, settlePeriod, nil)
	seen := c.see()
	full := max(c.recentPeak(), seen.open+2*(seen.begun-before)) + slack
	frames.limit(full)
	c.await(ctx, frames, full)
}

// await waits until so many requests are open, or none comes any more, and reports
// whether it is the latter.
func (c *client) await(ctx context.Context, frames frameWriter, full int) (quiet bool) {
	last := c.see()
	sent, first := 0, last.pongs
	var pinged time.Time
	for deadline := time.Now().Add(longestPause); ctx.Err() == nil && time.Now().Before(deadline); {
		seen := c.see()
		if seen.open >= full {
			return false
		}
		if seen.begun != last.begun {
			if full == math.MaxInt {
				return false
			}
			last = seen
		}
		if seen.quiet() && seen.pongs-last.pongs >= quietPings {
			return true
		}
		if seen.pongs-first >= sent && time.Since(pinged) >= pingInterval {
			pinged = time.Now()
			frames.ping()
			sent++
		}
		pass(ctx, pingInterval, seen.change)
	}
	return false
}

// pass waits for a while, or shorter if ctx or until is done.
func pass(ctx context.Context, duration time.Duration, until <-chan struct{}) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-until:
	case <-timer.C:
	}
}
