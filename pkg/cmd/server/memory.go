// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// returnInterval is how often it is checked whether memory can be returned. At a start it is
	// longer than what remains to be done after readiness.
	returnInterval = 5 * time.Second
	// An idle server allocates at most idleBytes in an interval. It returns memory from
	// returnBytes.
	idleBytes   = 32 << 20
	returnBytes = 32 << 20
)

// returnMemory returns memory that is no longer needed to the system when the server becomes idle,
// for example after a start, or after many definitions were created. An idle server would run the
// next garbage collection only after two minutes, and then return memory slowly.
func returnMemory(ctx context.Context) {
	before := readMemory()
	for {
		sleep(ctx, returnInterval)
		if ctx.Err() != nil {
			return
		}
		now := readMemory()
		if now.allocated-before.allocated < idleBytes && now.unused() >= returnBytes {
			debug.FreeOSMemory()
			now = readMemory()
		}
		before = now
	}
}

// memory has sizes of the heap in bytes.
type memory struct {
	// allocated is what was ever allocated. objects is what is allocated now, and includes
	// garbage; live is what the last garbage collection has left. free is kept for new objects.
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

// unused is what a garbage collection could return, at most.
func (m memory) unused() uint64 {
	unused := m.free
	if m.objects > m.live {
		unused += m.objects - m.live
	}
	return unused
}
