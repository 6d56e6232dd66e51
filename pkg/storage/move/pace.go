// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"time"
)

// longestRest is the longest rest after a page or a write.
const longestRest = 10 * time.Second

// Pace bounds what is done at the same time at an API server, and rests after each as long as that took: the API
// server spends at most half of that number of workers, and one that is busy gets longer rests. A nil Pace is no limit.
type Pace struct {
	// busy has an element for each that is done or rests.
	busy chan struct{}
}

// NewPace returns a Pace for at most so many at the same time.
func NewPace(most int) *Pace { return &Pace{busy: make(chan struct{}, most)} }

// isRested reports whether Do need not wait.
func (p *Pace) isRested() bool { return p == nil || len(p.busy) < cap(p.busy) }

// Do does something once that may be done.
func (p *Pace) Do(ctx context.Context, do func() error) error {
	if p == nil {
		return do()
	}
	select {
	case p.busy <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	began := time.Now()
	defer func() { time.AfterFunc(min(time.Since(began), longestRest), func() { <-p.busy }) }()
	return do()
}
