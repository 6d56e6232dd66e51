// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"sync"
	"time"
)

// Throttle keeps a minimum interval between repeated actions, per name. It never blocks:
// callers requeue the name after the delay.
type Throttle struct {
	interval time.Duration
	now      func() time.Time

	mu   sync.Mutex
	last map[string]time.Time
}

// NewThrottle returns a Throttle that reads the time from now.
func NewThrottle(interval time.Duration, now func() time.Time) *Throttle {
	return &Throttle{interval: interval, now: now, last: map[string]time.Time{}}
}

// Delay returns how long the next action for name must wait; zero if it may happen now.
func (t *Throttle) Delay(name string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, known := t.last[name]
	if !known {
		return 0
	}
	left := t.interval - t.now().Sub(last)
	if left <= 0 {
		delete(t.last, name)
		return 0
	}
	return left
}

// Mark records an action for name.
func (t *Throttle) Mark(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last[name] = t.now()
}

// Forget drops the record of name.
func (t *Throttle) Forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.last, name)
}
