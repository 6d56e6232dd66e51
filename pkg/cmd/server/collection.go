// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/annex-dev/annex/pkg/storage/cachememory"
)

const (
	// minGarbage is how much garbage there is at least when it is collected, in bytes. Go collects
	// when the heap has doubled; annex's live heap is small, so that is several times a second, and
	// a fifth of the CPU time of writes. Twice as much saves another twentieth of it, but leaves
	// the heap of the idle server more fragmented.
	minGarbage = 128 << 20
	// garbagePart is the part of a container's memory that garbage may take because of minGarbage.
	garbagePart = 8
	// defaultPercent is GOGC if it is not set.
	defaultPercent = 100
)

// collectLessOften sets the pace of the garbage collector for the rest of the process, unless GOGC
// sets it. GOMEMLIMIT is observed in any case.
func collectLessOften() {
	if os.Getenv("GOGC") != "" {
		return
	}
	garbage := uint64(minGarbage)
	if limit := cachememory.ContainerLimit(); limit != math.MaxInt64 {
		garbage = min(garbage, uint64(limit)/garbagePart)
	}
	paceCollections(garbage)
}

// paceCollections sets GOGC after the next garbage collection, and after all that follow.
func paceCollections(garbage uint64) {
	// A cleanup runs after the collection that frees its object.
	cycle := &struct{ _ *byte }{}
	runtime.AddCleanup(cycle, func(garbage uint64) {
		debug.SetGCPercent(percentFor(readMemory().live, garbage))
		paceCollections(garbage)
	}, garbage)
}

// percentFor returns the GOGC that makes a heap grow by the larger of itself and of garbage.
func percentFor(live, garbage uint64) int {
	return int(max(defaultPercent, defaultPercent*garbage/max(live, 1<<20)))
}
