// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package objectsize

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestBudget has fifty writers of the largest objects at once, and counts.
func TestBudget(t *testing.T) {
	t.Parallel()
	budget := NewBudget(4*16*mib, time.Minute)
	var running, most atomic.Int64
	var writers sync.WaitGroup
	for range 50 {
		writers.Go(func() {
			ctx, release, err := budget.Acquire(t.Context(), 16*mib)
			if err != nil {
				t.Error(err)
				return
			}
			defer release()
			now := running.Add(1)
			defer running.Add(-1)
			for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
			}
			// Who has a part never waits for another.
			if _, again, err := budget.Acquire(ctx, 16*mib); err != nil {
				t.Error(err)
			} else {
				again()
			}
			runtime.Gosched()
		})
	}
	writers.Wait()
	if most.Load() > 4 {
		t.Errorf("%d objects of 16 MiB were written at once, want 4 at the most", most.Load())
	}
}

func TestBudgetOfOne(t *testing.T) {
	t.Parallel()
	budget := NewBudget(2*mib, time.Minute)
	_, release, err := budget.Acquire(t.Context(), 100*mib)
	if err != nil {
		t.Fatalf("what is larger than the budget should go alone: %v", err)
	}
	release()
	for range 1000 {
		if _, _, err := budget.Acquire(t.Context(), HeavyBytes-1); err != nil {
			t.Fatalf("small objects take nothing: %v", err)
		}
	}
}
