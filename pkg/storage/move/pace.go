// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"sync"
	"time"
)

const (
	// longestRest is the longest rest after a page.
	longestRest = 10 * time.Second
	// pacePoll is between questions whether a page may be read.
	pacePoll = 10 * time.Millisecond
)

// Pace makes Importers of one source read one page at a time, and rest as long as that took: an API server
// spends at most half of a worker on them, and one that is busy gets longer rests. A nil Pace is no limit.
type Pace struct {
	mu sync.Mutex
	// reading is set while a page is read, and rested when the next one may be.
	reading bool
	rested  time.Time
}

// isRested reports whether a page may be read.
func (p *Pace) isRested() bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.reading && !time.Now().Before(p.rested)
}

// page reads a page once one may be read.
func (p *Pace) page(ctx context.Context, read func() error) error {
	if p == nil {
		return read()
	}
	for !p.begin() {
		if err := pause(ctx, pacePoll); err != nil {
			return err
		}
	}
	began := time.Now()
	defer func() { p.end(time.Since(began)) }()
	return read()
}

func (p *Pace) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reading || time.Now().Before(p.rested) {
		return false
	}
	p.reading = true
	return true
}

func (p *Pace) end(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reading, p.rested = false, time.Now().Add(min(took, longestRest))
}
