// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"runtime"
	"testing"
)

// Linear checks that work for an input twice as large allocates at most about twice the bytes. prepare
// makes the input, which does not count. The test must not be parallel: others' bytes would count too.
func Linear(t *testing.T, size int, prepare func(size int) (work func())) {
	t.Helper()
	allocated := func(size int) uint64 {
		work := prepare(size)
		work() // what is allocated once does not count
		least := ^uint64(0)
		for range 3 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			work()
			runtime.ReadMemStats(&after)
			least = min(least, after.TotalAlloc-before.TotalAlloc)
		}
		return least
	}
	if once, twice := allocated(size), allocated(2*size); twice > once*5/2 {
		t.Errorf("a size of %d takes %d bytes, twice the size %d bytes, %.1f times as many", size, once, twice, float64(twice)/float64(once))
	}
}
