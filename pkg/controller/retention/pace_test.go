// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	t.Parallel()
	p := &pace{}
	if got := p.rest(time.Millisecond); got != restFactor*time.Millisecond {
		t.Errorf("the rest after the first request is %s", got)
	}
	usual := p.rest(time.Millisecond)
	if busy := p.rest(3 * time.Millisecond); busy < 2*3*usual {
		t.Errorf("the rest after a request that takes three times as long is %s, usually %s", busy, usual)
	}
	if got := p.rest(time.Minute); got != maxRest {
		t.Errorf("the rest after a minute is %s, want %s", got, maxRest)
	}
	// A server that is slow for long is the usual one.
	for range 10_000 {
		p.rest(10 * time.Millisecond)
	}
	if got := p.rest(10 * time.Millisecond); got != restFactor*10*time.Millisecond {
		t.Errorf("the rest after 10,000 requests of the same time is %s, want %s", got, restFactor*10*time.Millisecond)
	}
}

func TestPaceOfNoTime(t *testing.T) {
	t.Parallel()
	p := &pace{}
	for range 3 {
		if got := p.rest(0); got <= 0 {
			t.Errorf("the rest is %s", got)
		}
	}
}
