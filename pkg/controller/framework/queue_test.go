// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
)

// signal is a cache.DoneChecker that is done once its channel is closed.
type signal chan struct{}

func (s signal) Name() string          { return "test signal" }
func (s signal) Done() <-chan struct{} { return s }

var _ cache.DoneChecker = signal(nil)

// start runs q and returns what stops it and waits for it.
func start[K comparable](t *testing.T, q *Queue[K], workers int, synced ...cache.DoneChecker) (stop func()) {
	t.Helper()
	q.WaitFor(synced...)
	return controllertest.Run(t, q, workers)
}

func TestReconcilesWhatWasAddedBeforeAndAfterTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen sync.Map
		q := NewQueue(QueueConfig[string]{Name: "test", Reconcile: func(_ context.Context, key string) (Result, error) {
			seen.Store(key, true)
			return Result{}, nil
		}})
		q.Add("before")
		stop := start(t, q, 2)
		q.Add("after")
		synctest.Wait()
		stop()
		for _, key := range []string{"before", "after"} {
			if _, ok := seen.Load(key); !ok {
				t.Errorf("key %q was not reconciled", key)
			}
		}
	})
}

func TestWaitsForItsCaches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		q := NewQueue(QueueConfig[string]{Name: "test", Reconcile: func(context.Context, string) (Result, error) {
			calls.Add(1)
			return Result{}, nil
		}})
		q.Add("key")
		synced := make(signal)
		stop := start(t, q, 1, synced)
		synctest.Wait()
		if got := calls.Load(); got != 0 {
			t.Errorf("reconciled %d times before the caches were synced", got)
		}
		close(synced)
		synctest.Wait()
		if got := calls.Load(); got != 1 {
			t.Errorf("reconciled %d times after the caches were synced, want 1", got)
		}
		stop()
	})
}

func TestStopsWhileItWaitsForItsCaches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(QueueConfig[string]{Name: "test", Reconcile: func(context.Context, string) (Result, error) {
			t.Error("reconciled without caches")
			return Result{}, nil
		}})
		q.Add("key")
		stop := start(t, q, 1, make(signal))
		synctest.Wait()
		stop()
	})
}

func TestRetriesFailuresEverLater(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() (Result, error){
		"error":   func() (Result, error) { return Result{}, errors.New("not yet") },
		"backoff": func() (Result, error) { return Result{Backoff: true}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const failures = 10
				var calls []time.Time
				q := NewQueue(QueueConfig[string]{Name: "test", MaxBackoff: time.Second, Reconcile: func(context.Context, string) (Result, error) {
					calls = append(calls, time.Now())
					if len(calls) <= failures {
						return fail()
					}
					return Result{}, nil
				}})
				q.Add("key")
				stop := start(t, q, 1)
				time.Sleep(time.Minute)
				stop()

				if len(calls) != failures+1 {
					t.Fatalf("reconciled %d times, want %d", len(calls), failures+1)
				}
				previous := time.Duration(0)
				for i := 1; i < len(calls); i++ {
					gap := calls[i].Sub(calls[i-1])
					if gap < previous || gap > time.Second {
						t.Errorf("retry %d came after %s; the one before after %s, the longest allowed is 1s", i, gap, previous)
					}
					previous = gap
				}
				if got := q.queue.NumRequeues("key"); got != 0 {
					t.Errorf("%d failures are remembered after a success", got)
				}
			})
		})
	}
}

func TestAddFreshEndsTheBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		q := NewQueue(QueueConfig[string]{Name: "test", Reconcile: func(context.Context, string) (Result, error) {
			calls++
			return Result{Backoff: true}, nil
		}})
		q.Add("key")
		stop := start(t, q, 1)
		defer stop()
		time.Sleep(time.Hour)
		synctest.Wait()
		before := calls
		q.AddFresh("key")
		time.Sleep(time.Second)
		synctest.Wait()
		// After 0, 10, 30, 70, 150, 310 and 630 milliseconds.
		if got := calls - before; got < 7 {
			t.Errorf("reconciled %d times in a second, want 7", got)
		}
	})
}

// TestRequeueAfter: the delay also bounds the delays of retries.
func TestRequeueAfter(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{"success": nil, "failures": errors.New("no")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var calls []time.Time
				q := NewQueue(QueueConfig[string]{Name: "test", Reconcile: func(context.Context, string) (Result, error) {
					calls = append(calls, time.Now())
					return Result{RequeueAfter: 3 * time.Second}, failure
				}})
				q.Add("key")
				stop := start(t, q, 1)
				time.Sleep(time.Minute)
				stop()
				if n := len(calls); n < 20 || calls[n-1].Sub(calls[n-2]) != 3*time.Second {
					t.Errorf("reconciled at %v, want every 3s at last", calls)
				}
			})
		})
	}
}

func TestStopLeavesQueuedKeysAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		q := NewQueue(QueueConfig[int]{Name: "test", Reconcile: func(ctx context.Context, _ int) (Result, error) {
			calls.Add(1)
			<-ctx.Done()
			return Result{}, ctx.Err()
		}})
		for key := range 50 {
			q.Add(key)
		}
		stop := start(t, q, 1)
		synctest.Wait()
		stop()
		if got := calls.Load(); got != 1 {
			t.Errorf("reconciled %d keys, want only the one that was under way", got)
		}
	})
}

func TestLogsEverFewerFailures(t *testing.T) {
	t.Parallel()
	var loud []int
	for failures := range 100 {
		if isLoud(failures) {
			loud = append(loud, failures)
		}
	}
	if want := []int{8, 16, 32, 64}; !slices.Equal(loud, want) {
		t.Errorf("of 100 failures in a row %v are logged as errors, want %v", loud, want)
	}
}

func TestFinishesWhatItBegan(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		takes    time.Duration
		finishes bool
	}{
		"soon done":    {finishPeriod / 2, true},
		"takes longer": {time.Hour, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var finished bool
				q := NewQueue(QueueConfig[string]{Name: "test", Reconcile: func(ctx context.Context, _ string) (Result, error) {
					select {
					case <-ctx.Done():
					case <-time.After(tc.takes):
						finished = true
					}
					return Result{}, ctx.Err()
				}})
				q.Add("key")
				stop := start(t, q, 1)
				synctest.Wait()
				stopped := time.Now()
				stop()
				if finished != tc.finishes {
					t.Errorf("finished: %t, want %t", finished, tc.finishes)
				}
				if took, want := time.Since(stopped), min(tc.takes, finishPeriod); took != want {
					t.Errorf("stop took %s, want %s", took, want)
				}
			})
		})
	}
}
