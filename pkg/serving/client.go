// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"sync"
	"time"
)

const (
	// settlePeriod is how long requests are paused before it is known how many
	// come: those that were handled end meanwhile.
	settlePeriod = 20 * time.Millisecond
	// quietPeriod without a request says that the client waits for answers.
	quietPeriod = 100 * time.Millisecond
	// longestPause bounds what a leave costs requests that it pauses.
	longestPause = 500 * time.Millisecond
	// longestIdle bounds the wait for the next request of an idle client.
	longestIdle = time.Second
	// slack is how many requests more than were seen to come may be on their way
	// inside the client.
	slack = 4
)

// client is what is known of the other side of a connection: its requests.
type client struct {
	asked chan struct{}

	mu     sync.Mutex
	open   int
	begun  int
	latest time.Time     // when the last one began
	change chan struct{} // closed when another begins
	paused chan struct{} // closed when requests may go on, nil if they may
}

func newClient() *client {
	return &client{asked: make(chan struct{}, 1), change: make(chan struct{}), latest: time.Now()}
}

// begin counts a request in, and waits while requests are paused.
func (c *client) begin(ctx context.Context) {
	c.mu.Lock()
	c.open++
	c.begun++
	c.latest = time.Now()
	close(c.change)
	c.change = make(chan struct{})
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

// end counts a request out.
func (c *client) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
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

// counts returns how many requests are open and how many ever began, for how
// long none has, and a channel that is closed when the next does.
func (c *client) counts() (open, begun int, quiet time.Duration, change <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open, c.begun, time.Since(c.latest), c.change
}

// ask has the client's connection closed for new requests some time soon.
func (c *client) ask() {
	select {
	case c.asked <- struct{}{}:
	default: // it was asked already
	}
}

// seeOff bids the client farewell at a moment at which that harms none of its
// requests, or after a while. limit sets how many streams the client may have.
//
// A farewell that has reached the client makes its connection unusable for those
// requests, too, that the client has assigned to it and not sent yet. Go's client
// cannot send them elsewhere if they have a body. What the server can do is to
// limit the client to a few streams more than it has, and wait until it has them
// all: then there is none in between, and what comes next goes elsewhere already.
func (c *client) seeOff(ctx context.Context, limit func(streams int), farewell func()) {
	open, before, quiet, change := c.counts()
	defer c.pause()()
	defer farewell()
	if quiet >= quietPeriod {
		// The next request is the last here.
		limit(open + 1)
		pass(ctx, longestIdle, change)
		return
	}
	pass(ctx, settlePeriod, nil)
	open, begun, _, _ := c.counts()
	full := open + 2*(begun-before) + slack
	limit(full)
	for deadline := time.Now().Add(longestPause); ctx.Err() == nil; {
		open, _, quiet, change := c.counts()
		left := min(quietPeriod-quiet, time.Until(deadline))
		if open >= full || left <= 0 {
			return
		}
		pass(ctx, left, change)
	}
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
