// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, began := &Pace{}, time.Now()
		var reading time.Duration
		read := func() error {
			time.Sleep(time.Second)
			reading += time.Second // nothing else reads
			return nil
		}
		var importers sync.WaitGroup
		for range 2 {
			importers.Go(func() {
				for range 10 {
					expect.Succeeds(t, p.page(t.Context(), read))
				}
			})
		}
		importers.Wait()
		if total := time.Since(began); total < 2*reading-time.Second || total > 2*reading+time.Second {
			t.Errorf("it was read for %s of %s, want half", reading, total)
		}
		if p.isRested() {
			t.Error("there is no rest after the last page")
		}
		synctest.Wait()
		time.Sleep(time.Second)
		if !p.isRested() {
			t.Error("the rest does not end")
		}
		expect.Succeeds(t, p.page(t.Context(), func() error { time.Sleep(time.Minute); return nil }))
		time.Sleep(longestRest)
		if !p.isRested() {
			t.Error("the rest has no limit")
		}
		canceled, cancel := context.WithCancel(t.Context())
		expect.Succeeds(t, p.page(canceled, read))
		cancel()
		expect.Error(t, p.page(canceled, read), "canceled")
	})
}
