// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
)

// TestUnusedMemory is not parallel, because other tests allocate too.
func TestUnusedMemory(t *testing.T) {
	const size = 4 * returnBytes
	// A collection at any other time, and what earlier tests left running, would change the numbers.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	debug.FreeOSMemory()
	before := readMemory()
	garbage := make([]byte, size)
	runtime.KeepAlive(garbage)
	after := readMemory()
	if allocated := after.allocated - before.allocated; allocated < size {
		t.Errorf("%d bytes were allocated, want at least %d", allocated, size)
	}
	if unused := after.unused(); unused < size/2 {
		t.Errorf("%d bytes are unused, want at least %d", unused, size/2)
	}
	debug.FreeOSMemory()
	if returned := readMemory(); returned.unused() > after.unused()-size/2 {
		t.Errorf("%d bytes are unused after %d were returned, want at least %d fewer", returned.unused(), after.unused(), size/2)
	}
}

// TestLimitMemory is not parallel, because the limit is of the process.
func TestLimitMemory(t *testing.T) {
	unlimited := debug.SetMemoryLimit(-1)
	for name, tc := range map[string]struct {
		variable        string
		container, want int64
	}{
		"a container":           {"", 1000 << 20, 900 << 20},
		"no limit":              {"", math.MaxInt64, unlimited},
		"limited by GOMEMLIMIT": {"1GiB", 1000 << 20, unlimited},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOMEMLIMIT", tc.variable)
			defer debug.SetMemoryLimit(unlimited)
			limitMemory(tc.container)
			if got := debug.SetMemoryLimit(-1); got != tc.want {
				t.Errorf("the limit is %d, want %d", got, tc.want)
			}
		})
	}
}

func TestIsWorthReturning(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for name, test := range map[string]struct {
		allocated uint64
		memory    memory
		want      bool
	}{
		"after a start":           {mib, memory{objects: 60 * mib, live: 50 * mib, free: 30 * mib}, true},
		"nearly nothing":          {mib, memory{objects: 54 * mib, live: 50 * mib, free: 3 * mib}, false},
		"garbage of an interval":  {10 * mib, memory{objects: 60 * mib, live: 50 * mib, free: mib}, false},
		"garbage of more":         {10 * mib, memory{objects: 75 * mib, live: 50 * mib, free: mib}, true},
		"busy":                    {40 * mib, memory{objects: 300 * mib, live: 50 * mib, free: 100 * mib}, false},
		"a large heap":            {mib, memory{objects: 1100 * mib, live: 1000 * mib, free: 50 * mib}, true},
		"little of a large heap":  {mib, memory{objects: 1030 * mib, live: 1000 * mib, free: 20 * mib}, false},
		"more live than objects":  {0, memory{objects: 10 * mib, live: 50 * mib, free: mib}, false},
		"a live heap that shrank": {0, memory{objects: 10 * mib, live: 50 * mib, free: 60 * mib}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := test.memory.isWorthReturning(test.allocated); got != test.want {
				t.Errorf("%+v after %d allocated bytes: %v, want %v", test.memory, test.allocated, got, test.want)
			}
		})
	}
}
