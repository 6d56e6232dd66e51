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

// next pops an item that must be there without waiting.
func (q *queue) next(t *testing.T) (string, int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	timer := time.AfterFunc(time.Millisecond, cancel)
	defer timer.Stop()
	name, changes, ok := q.pop(ctx)
	if !ok {
		return "", 0
	}
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

func expect(t *testing.T, what string, got []string, want ...string) {
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
		q.add("can wait", -1)
		q.add("gone", 100)
		q.add("became urgent", 0)
		q.add("became urgent", 5)
		q.remove("gone")
		expect(t, "order", q.drain(t), "urgent", "became urgent", "first", "second", "can wait")
	})
}

func TestQueueKeepsEachOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 0)
		q.add("a", 0)
		name, changes := q.next(t)
		q.add(name, 0) // while it is worked on: not handed out twice at a time
		expect(t, "while it is worked on", q.drain(t))
		q.addUnschedulable(name, map[string]string{"s": "full"}, changes)
		expect(t, "after it changed meanwhile", q.drain(t), "a")
	})
}

func TestQueueParksUntilSomethingFits(t *testing.T) {
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
			return map[string]effect{"a": unaffected, "b": fits, "c": messageChanged}[name]
		})
		if diff := cmp.Diff(map[string]string{"a": "full", "b": "full", "c": "full"}, seen); diff != "" {
			t.Errorf("tried on (-want +got):\n%s", diff)
		}
		expect(t, "at once", q.drain(t), "b")
		time.Sleep(firstBackoff)
		expect(t, "after a while", q.drain(t), "c")
		time.Sleep(time.Hour)
		expect(t, "without a change", q.drain(t))
	})
}

// TestQueueMissesNoChange: a change that comes between the decision and the parking
// would have been tried on it.
func TestQueueMissesNoChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 0)
		name, changes := q.next(t)
		q.change(func(string, map[string]string) effect { t.Error("tried on what does not wait"); return unaffected })
		q.addUnschedulable(name, map[string]string{}, changes)
		expect(t, "again", q.drain(t), "a")
	})
}

func TestQueueFitsBeforeItsBackoffEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.add("a", 0)
		name, changes := q.next(t)
		q.addUnschedulable(name, map[string]string{"s": "full"}, changes)
		q.change(func(string, map[string]string) effect { return messageChanged })
		expect(t, "in other words", q.drain(t))
		q.change(func(string, map[string]string) effect { return fits })
		expect(t, "once it fits", q.drain(t), "a")
		time.Sleep(maxBackoff)
		expect(t, "the back-off does not come after it", q.drain(t))
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
		// What somebody changed is looked at without a wait.
		q.backOff(name)
		q.add(name, 0)
		expect(t, "changed", q.drain(t), "a")
	})
}

func TestQueueEnds(t *testing.T) {
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
			t.Error("an item came from an empty queue")
		}
		q.add("a", 0)
		q.next(t)
		q.backOff("a")
		q.close() // or the timer would keep this test from ending at once
		q.backOff("a")
	})
}
