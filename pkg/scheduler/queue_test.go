// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// next pops an active item, or returns "" if there is none.
func (q *queue) next(t *testing.T) (string, int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	timer := time.AfterFunc(time.Millisecond, cancel)
	defer timer.Stop()
	name, changes, _ := q.pop(ctx)
	return name, changes
}

func (q *queue) drain(t *testing.T) []string {
	t.Helper()
	var names []string
	for {
		name, _ := q.next(t)
		if name == "" {
			return names
		}
		names = append(names, name)
	}
}

func expectItems(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestQueueOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("first", 0)
		q.add("second", 0)
		q.add("urgent", 10)
		q.add("low", -1)
		q.add("removed", 100)
		q.add("raised", 0)
		q.add("raised", 5)
		q.remove("removed")
		expectItems(t, "order", q.drain(t), "urgent", "raised", "first", "second", "low")
	})
}

func TestQueueHasNoDuplicates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 0)
		q.add("a", 0)
		name, changes := q.next(t)
		q.add(name, 0)
		expectItems(t, "while in flight", q.drain(t))
		q.addUnschedulable(name, map[string]string{"s": "full"}, changes)
		expectItems(t, "after a change in flight", q.drain(t), "a")
	})
}

func TestQueueKeepsUnschedulableUntilOneFits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		for _, name := range []string{"a", "b", "c"} {
			q.add(name, 0)
			popped, changes := q.next(t)
			q.addUnschedulable(popped, map[string]string{"s": "full"}, changes)
		}
		seen := map[string]string{}
		q.change(func(name string, reasons map[string]string) effect {
			seen[name] = reasons["s"]
			return map[string]effect{"a": unaffected, "b": fits, "c": reasonsChanged}[name]
		})
		if diff := cmp.Diff(map[string]string{"a": "full", "b": "full", "c": "full"}, seen); diff != "" {
			t.Errorf("checked (-want +got):\n%s", diff)
		}
		expectItems(t, "at once", q.drain(t), "b")
		time.Sleep(firstBackoff)
		expectItems(t, "after the backoff", q.drain(t), "c")
		time.Sleep(time.Hour)
		expectItems(t, "without a change", q.drain(t))
	})
}

// TestQueueMissesNoChange makes a change between the decision and addUnschedulable.
func TestQueueMissesNoChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 0)
		name, changes := q.next(t)
		q.change(func(string, map[string]string) effect { t.Error("checked an item in flight"); return unaffected })
		q.addUnschedulable(name, map[string]string{}, changes)
		expectItems(t, "again", q.drain(t), "a")
	})
}

func TestQueueActivatesDuringBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 0)
		name, changes := q.next(t)
		q.addUnschedulable(name, map[string]string{"s": "full"}, changes)
		q.change(func(string, map[string]string) effect { return reasonsChanged })
		expectItems(t, "other reasons", q.drain(t))
		q.change(func(string, map[string]string) effect { return fits })
		expectItems(t, "fits", q.drain(t), "a")
		time.Sleep(maxBackoff)
		expectItems(t, "after the backoff", q.drain(t))
	})
}

func TestQueueBacksOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 0)
		name, _ := q.next(t)
		var waits []time.Duration
		for range 9 {
			began := time.Now()
			q.backOff(name)
			q.pop(t.Context())
			waits = append(waits, time.Since(began))
		}
		want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute, time.Minute}
		if diff := cmp.Diff(want, waits); diff != "" {
			t.Errorf("waits (-want +got):\n%s", diff)
		}
		// A changed resource does not wait.
		q.backOff(name)
		q.add(name, 0)
		expectItems(t, "changed", q.drain(t), "a")
	})
}

func TestQueueStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan bool)
		go func() {
			_, _, ok := q.pop(ctx)
			ended <- ok
		}()
		synctest.Wait()
		cancel()
		if <-ended {
			t.Error("popped from an empty queue")
		}
		q.add("a", 0)
		q.next(t)
		q.backOff("a")
		q.close() // stops the timer
		q.backOff("a")
	})
}
