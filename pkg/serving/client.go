// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"sync"
	"time"
)

const (
	// A client has no lower limit of streams for firstPause, in which most become quiet.
	firstPause = 200 * time.Millisecond
	// Requests are paused for settlePeriod to measure their rate.
	settlePeriod = 20 * time.Millisecond
	// After quietPeriod without a request, and quietPings answered, the client waits for
	// responses and is not merely too busy to send.
	quietPeriod = 100 * time.Millisecond
	quietPings  = 8
	// pingInterval is the minimum time between two pings.
	pingInterval = 10 * time.Millisecond
	// longestPause bounds the pause of requests. A client on a busy machine needs more than a second for the pings.
	longestPause = 5 * time.Second
	// longestIdle bounds the wait for the next request of an idle client.
	longestIdle = time.Second
	// slack is added to the expected number of requests that the client has assigned to the
	// connection.
	slack = 32
)

// client counts the requests of the client of a connection.
type client struct {
	// streams is the server's limit on open requests.
	streams  int
	draining chan struct{}
	pings    int // sent, only used by leave

	mu     sync.Mutex
	seen   activity
	paused chan struct{} // closed when requests may continue, nil if they are not paused
	left   time.Time     // when GOAWAY was sent
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

func newClient(streams int) *client {
	return &client{streams: streams, draining: make(chan struct{}, 1), seen: activity{latest: time.Now(), change: make(chan struct{})}}
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

// leftAt returns when the client got GOAWAY, or zero.
func (c *client) leftAt() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
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
// have a body; the same holds for requests beyond a lower limit of streams. So requests are
// paused until the client waits for responses to all that it has sent. A client that sends
// more nevertheless is limited to a few more streams than it needs, until they are all open:
// then no request is in between, and the next one goes elsewhere. An idle client may open one
// stream, for its next request.
func (c *client) leave(ctx context.Context, frames frameWriter) {
	defer c.pause()()
	defer func() {
		frames.goAway()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.left = time.Now()
	}()
	ctx, cancel := context.WithTimeout(ctx, longestPause)
	defer cancel()
	first, cancelFirst := context.WithTimeout(ctx, firstPause)
	defer cancelFirst()
	began := c.see()
	quiet := c.await(first, frames, c.streams)
	if before := c.see(); !quiet && before.open < c.streams {
		pass(ctx, settlePeriod, nil)
		seen := c.see()
		full := min(seen.open+2*(seen.begun-before.begun)+slack, c.streams)
		frames.limit(full)
		quiet = c.await(ctx, frames, full)
	}
	if seen := c.see(); quiet && seen.begun == began.begun { // the pause delays no request
		frames.limit(seen.open + 1)
		pass(ctx, longestIdle, seen.change)
	}
}

// await waits until full requests are open or the client is quiet, and reports whether it
// is quiet.
func (c *client) await(ctx context.Context, frames frameWriter, full int) (quiet bool) {
	last := c.see()
	var pinged time.Time
	for ctx.Err() == nil {
		seen := c.see()
		if seen.open >= full {
			return false
		}
		if seen.begun != last.begun {
			last = seen
		}
		if seen.quiet() && seen.pongs-last.pongs >= quietPings {
			return true
		}
		if seen.pongs >= c.pings && time.Since(pinged) >= pingInterval {
			pinged = time.Now()
			frames.ping()
			c.pings++
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
