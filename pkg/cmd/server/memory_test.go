// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// TestUnusedMemory is not parallel, because other tests allocate too.
func TestUnusedMemory(t *testing.T) {
	const size = 4 * returnBytes
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
	if unused := readMemory().unused(); unused >= returnBytes {
		t.Errorf("%d bytes are unused after they were returned, want less than %d", unused, returnBytes)
	}
}
