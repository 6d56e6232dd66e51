// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"github.com/annex-dev/annex/pkg/storage/cachememory"
)

const (
	// minGarbage is how much garbage there is at least when a busy server collects it, in bytes.
	// Go collects when the heap has doubled; annex's live heap is small, so that is several times a
	// second under load, and a fifth of the CPU time of writes.
	minGarbage = 256 << 20
	// garbagePart is the part of a container's memory that minGarbage may be at most.
	garbagePart = 8
	// A busy server allocates busyBytes in each returnInterval. The first one does not count: while
	// watch caches are filled after a start, more garbage would leave the heap fragmented.
	busyBytes = 256 << 20
	// defaultPercent is GOGC if it is not set.
	defaultPercent = 100
)

// paceCollections collects garbage less often while the server is busy, until ctx is done. It
// leaves that to GOGC if that is set. GOMEMLIMIT is observed in any case.
func paceCollections(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	allowed := uint64(minGarbage)
	if limit := cachememory.ContainerLimit(); limit != math.MaxInt64 {
		allowed = min(allowed, uint64(limit)/garbagePart)
	}
	var garbage atomic.Uint64
	defer garbage.Store(0)
	adjustAfterCollections(&garbage)
	before, wasBusy := readMemory(), false
	for {
		sleep(ctx, returnInterval)
		if ctx.Err() != nil {
			return
		}
		now := readMemory()
		busy := now.allocated-before.allocated >= busyBytes
		if busy && wasBusy {
			garbage.Store(allowed)
		} else {
			garbage.Store(0)
		}
		debug.SetGCPercent(percentFor(now.live, garbage.Load()))
		before, wasBusy = now, busy
	}
}

// adjustAfterCollections sets GOGC after the next garbage collection, and after all that follow:
// the live heap may have grown.
func adjustAfterCollections(garbage *atomic.Uint64) {
	// A cleanup runs after the collection that frees its object.
	cycle := &struct{ _ *byte }{}
	runtime.AddCleanup(cycle, func(garbage *atomic.Uint64) {
		debug.SetGCPercent(percentFor(readMemory().live, garbage.Load()))
		adjustAfterCollections(garbage)
	}, garbage)
}

// percentFor returns the GOGC that makes a heap grow by the larger of itself and of garbage.
func percentFor(live, garbage uint64) int {
	return int(max(defaultPercent, defaultPercent*garbage/max(live, 1<<20)))
}
