// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"testing"
	"time"
)

func TestThrottle(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := NewThrottle(time.Second, func() time.Time { return now })
	if got := p.Delay("a"); got != 0 {
		t.Errorf("the first time waits %s", got)
	}
	p.Mark("a")
	now = now.Add(300 * time.Millisecond)
	if got := p.Delay("a"); got != 700*time.Millisecond {
		t.Errorf("0.3s after a time the next waits %s, want 700ms", got)
	}
	if got := p.Delay("b"); got != 0 {
		t.Errorf("one name waits %s for another", got)
	}
	now = now.Add(700 * time.Millisecond)
	if got := p.Delay("a"); got != 0 {
		t.Errorf("1s after a time the next waits %s", got)
	}
	if len(p.last) != 0 {
		t.Errorf("%d names are remembered that have nothing to wait for", len(p.last))
	}
	p.Mark("a")
	p.Forget("a")
	if got := p.Delay("a"); got != 0 {
		t.Errorf("what was forgotten waits %s", got)
	}
}
