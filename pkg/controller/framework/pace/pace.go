// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pace keeps what is done for each of many names at least some time
// apart, without ever sleeping: callers ask how long to wait and queue the name
// for then.
package pace

import (
	"sync"
	"time"
)

// Pace remembers when something was done last for each name.
type Pace struct {
	interval time.Duration
	now      func() time.Time

	mu   sync.Mutex
	last map[string]time.Time
}

// New returns a Pace at which nothing has been done yet.
func New(interval time.Duration, now func() time.Time) *Pace {
	return &Pace{interval: interval, now: now, last: map[string]time.Time{}}
}

// Wait returns how long the next time for name has to wait; zero means not.
func (p *Pace) Wait(name string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, known := p.last[name]
	if !known {
		return 0
	}
	left := p.interval - p.now().Sub(last)
	if left <= 0 {
		delete(p.last, name)
		return 0
	}
	return left
}

// Mark notes that it was done for name.
func (p *Pace) Mark(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last[name] = p.now()
}

// Forget drops what is known of name.
func (p *Pace) Forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, name)
}
