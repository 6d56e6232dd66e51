// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/annex-dev/annex/pkg/test/poll"
)

func TestPercentFor(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for name, test := range map[string]struct {
		live, garbage uint64
		want          int
	}{
		"nothing is known":    {0, 128 * mib, 12800},
		"a small heap":        {32 * mib, 128 * mib, 400},
		"a medium one":        {100 * mib, 128 * mib, 128},
		"as large":            {128 * mib, 128 * mib, 100},
		"a large one":         {1 << 40, 128 * mib, 100},
		"a tiny container":    {64 * mib, 8 * mib, 100},
		"a small container":   {32 * mib, 64 * mib, 200},
		"very much garbage":   {32 * mib, 1 << 40, 100 << 15},
		"without an increase": {64 * mib, 0, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := percentFor(test.live, test.garbage); got != test.want {
				t.Errorf("percentFor(%d, %d) = %d, want %d", test.live, test.garbage, got, test.want)
			}
		})
	}
}

// TestAdjustAfterCollections is not parallel: GOGC applies to the process.
func TestAdjustAfterCollections(t *testing.T) {
	p := &pacer{pace: &pace{}}
	p.pace.garbage.Store(1 << 40)
	p.pace.adjustAfterCollections()
	percent := func() int {
		runtime.GC()
		return readPercent()
	}
	percents := map[int]bool{}
	poll.UntilNoError(t, "the percentage follows the live heap of two collections", func() error {
		percents[percent()] = true
		if len(percents) < 3 {
			return fmt.Errorf("the percentages were %v", percents)
		}
		return nil
	})
	p.stop()
	poll.UntilNoError(t, "the percentage is the default again", func() error {
		if got := percent(); got != defaultPercent {
			return fmt.Errorf("it is %d", got)
		}
		return nil
	})
}
