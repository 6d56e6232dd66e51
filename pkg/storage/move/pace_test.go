// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestPace(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 16} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testPace(t, most) })
		})
	}
}

func testPace(t *testing.T, most int) {
	p, began := NewPace(most), time.Now()
	second := func() error { time.Sleep(time.Second); return nil }
	var all sync.WaitGroup
	for range 2 * most {
		all.Go(func() {
			for range 10 {
				expect.Succeeds(t, p.Do(t.Context(), second))
			}
		})
	}
	all.Wait()
	// 20 for each of most, with 19 rests.
	expect.Equal(t, 39*time.Second, time.Since(began))
	if p.isRested() {
		t.Error("there is no rest after the last")
	}
	time.Sleep(time.Second)
	synctest.Wait()
	if !p.isRested() {
		t.Error("the rest does not end")
	}
	expect.Succeeds(t, p.Do(t.Context(), func() error { time.Sleep(time.Minute); return nil }))
	time.Sleep(longestRest)
	synctest.Wait()
	expect.Equal(t, 0, len(p.busy), "the rest has no limit")

	canceled, cancel := context.WithCancel(t.Context())
	for range most {
		all.Go(func() { expect.Succeeds(t, p.Do(canceled, second)) })
	}
	all.Wait()
	cancel()
	expect.Error(t, p.Do(canceled, second), "canceled")
}

// slowTarget is a Target whose writes take a second.
type slowTarget struct{ objectTarget }

func (*slowTarget) Write(context.Context, string, *Object, *Object) error {
	time.Sleep(time.Second)
	return nil
}

// TestSyncIsPaced rests after the writes of two Syncers of a target, of compared objects and of others, until Drain waits.
func TestSyncIsPaced(t *testing.T) {
	t.Parallel()
	for _, draining := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			pace, began := NewPace(workers), time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			var writing, working sync.WaitGroup
			compared, others := NewSyncer(nil, &slowTarget{}, pace), NewSyncer(nil, &slowTarget{}, pace)
			end := others.queue.start(ctx)
			var changes []change
			for i := range 5 * workers {
				changes = append(changes, change{Object: Object{Key: fmt.Sprint(i)}, put: true, to: &Object{}})
				others.Again(fmt.Sprint(i))
			}
			if draining {
				compared.wanted.Store(1)
				others.wanted.Store(1)
			}
			writing.Go(func() { expect.Succeeds(t, compared.write(ctx, changes)) })
			for range workers {
				working.Go(func() { _ = others.queue.work(ctx, others) })
			}
			for others.queue.len() > 0 {
				time.Sleep(time.Second)
				synctest.Wait()
			}
			writing.Wait()
			cancel()
			end()
			working.Wait()
			want := 20 * time.Second // ten times a second for each worker, and the rests
			if took := time.Since(began); draining != (took < want/2) || took > want {
				t.Errorf("draining: %t, took %s", draining, took)
			}
		})
	}
}
