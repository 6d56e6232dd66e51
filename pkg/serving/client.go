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
	// Requests are paused for settlePeriod to measure their rate.
	settlePeriod = 20 * time.Millisecond
	// After quietPeriod without a request, and quietPings answered, the client waits for
	// responses and is not merely too busy to send.
	quietPeriod = 100 * time.Millisecond
	quietPings  = 3
	// pingInterval is the minimum time between two pings.
	pingInterval = 10 * time.Millisecond
	// longestPause bounds the pause of requests.
	longestPause = time.Second
	// longestIdle bounds the wait for the next request of an idle client.
	longestIdle = time.Second
	// peakPeriod is the minimum time for which a number of open requests counts as recent.
	peakPeriod = 10 * time.Second
	// slack is added to the expected number of requests that the client has assigned to the
	// connection.
	slack = 4
)

// client counts the requests of the client of a connection.
type client struct {
	draining chan struct{}

	mu     sync.Mutex
	seen   activity
	paused chan struct{} // closed when requests may continue, nil if they are not paused

	// peak is the maximum of open requests in the current period, formerPeak in the
	// previous one.
	peak, formerPeak int
	period           time.Time
}

// activity counts what a client has sent so far.
type activity struct {
	// open counts requests that are handled or paused, begun all requests.
	open, begun int
	latest      time.Time // the last request
	pongs       int       // answered pings
	change      chan struct{}
}

func (s activity) quiet() bool { return time.Since(s.latest) >= quietPeriod }

func newClient() *client {
	now := time.Now()
	return &client{draining: make(chan struct{}, 1), seen: activity{latest: now, change: make(chan struct{})}, period: now}
}

// see returns the activity; its change is closed when it changes.
func (c *client) see() activity {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

// changed notifies callers that wait for a change. It needs the lock.
func (c *client) changed() {
	close(c.seen.change)
	c.seen.change = make(chan struct{})
}

// begin counts a new request, and blocks while requests are paused.
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

// countPeak updates the peak. It needs the lock.
func (c *client) countPeak() {
	if now := time.Now(); now.Sub(c.period) > peakPeriod {
		c.formerPeak, c.peak, c.period = c.peak, 0, now
	}
	c.peak = max(c.peak, c.seen.open)
}

// recentPeak returns the recent maximum of open requests.
func (c *client) recentPeak() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.countPeak()
	return max(c.peak, c.formerPeak)
}

// pong counts an answered ping.
func (c *client) pong() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen.pongs++
	c.changed()
}

// end counts a request that has ended.
func (c *client) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen.open--
}

// pause makes new requests wait until resume is called.
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

// drain closes the client's connection for new requests soon.
func (c *client) drain() {
	select {
	case c.draining <- struct{}{}:
	default: // already requested
	}
}

// frameWriter writes frames to the client.
type frameWriter interface {
	// limit sets how many streams the client may have open.
	limit(streams int)
	ping()
	goAway()
}

// leave sends GOAWAY at a moment at which the client loses no request, or after a while.
//
// After a GOAWAY, the client cannot use the connection for the requests that it has
// assigned to it and not sent yet either. Go's client cannot send them elsewhere if they
// have a body. So the server limits the client to a few more streams than it needs, and
// waits until they are all open: then no request is in between, and the next one goes
// elsewhere. A client that does not need that many sends no more requests.
func (c *client) leave(ctx context.Context, frames frameWriter) {
	defer c.pause()()
	defer frames.goAway()
	// The pause delays no request while none arrives.
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

// await waits until full requests are open or the client is quiet, and reports whether it
// is quiet.
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

// pass waits for duration, or until ctx or until is done.
func pass(ctx context.Context, duration time.Duration, until <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-until:
	case <-time.After(duration):
	}
}
