// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// memoryInterval is the time between two reads of the use of memory. At a start it is longer than what
	// remains to be done after readiness.
	memoryInterval = 5 * time.Second
	// An idle server allocates at most idleBytes in an interval. It returns memory from
	// returnBytes, and from one returnPart of the live heap, which a garbage collection reads.
	idleBytes   = 32 << 20
	returnBytes = 8 << 20
	returnPart  = 16
	// limitPercent is the part of the container's memory that Go may use. The rest is for etcd's file, which the kernel
	// can drop, and for what Go does not count.
	limitPercent = 90
)

// limitMemory makes Go collect garbage before the kernel kills the process: without GOMEMLIMIT, Go does not know the limit
// of its container.
func limitMemory(container int64) {
	if os.Getenv("GOMEMLIMIT") == "" && container != math.MaxInt64 {
		debug.SetMemoryLimit(container / 100 * limitPercent)
	}
}

// manageMemory reads the use of memory at intervals, until ctx is done: a busy server collects garbage
// less often, and one that becomes idle, for example after a start or after many definitions were
// created, returns to the system what it no longer needs. Without that an idle server would run the
// next garbage collection only after two minutes, and then return memory slowly.
func manageMemory(ctx context.Context) {
	pace := newPacer()
	defer pace.stop()
	before := readMemory()
	for {
		sleep(ctx, memoryInterval)
		if ctx.Err() != nil {
			return
		}
		now := readMemory()
		allocated := now.allocated - before.allocated
		pace.adjust(allocated, now.live)
		if now.isWorthReturning(allocated) {
			debug.FreeOSMemory()
			now = readMemory()
		}
		before = now
	}
}

// memory has sizes of the heap in bytes.
type memory struct {
	// allocated counts all that was ever allocated, objects all that is now, which includes
	// garbage, and live all that the last garbage collection has left. free is kept for new objects.
	allocated, objects, live, free uint64
}

func readMemory() memory {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	values := make([]uint64, len(samples))
	for i, sample := range samples {
		if sample.Value.Kind() == metrics.KindUint64 {
			values[i] = sample.Value.Uint64()
		}
	}
	return memory{allocated: values[0], objects: values[1], live: values[2], free: values[3]}
}

// isWorthReturning reports whether a server that allocated so much in an interval is idle, and has
// so much unused memory that it is not collected in each interval.
func (m memory) isWorthReturning(allocated uint64) bool {
	return allocated < idleBytes && m.unused() >= max(returnBytes, 2*allocated, m.live/returnPart)
}

// unused returns the most that a garbage collection could return.
func (m memory) unused() uint64 {
	unused := m.free
	if m.objects > m.live {
		unused += m.objects - m.live
	}
	return unused
}
