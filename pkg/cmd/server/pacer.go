// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"

	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

const (
	// minGarbage is the least garbage that a busy server collects, in bytes.
	// Go collects when the heap has doubled; annex's live heap is small, so that is several times a
	// second under load, and a fifth of the CPU time of writes.
	minGarbage = 256 << 20
	// garbagePart is the part of a container's memory that minGarbage may be at most.
	garbagePart = 8
	// A busy server allocates busyBytes in each memoryInterval. The first one does not count: while
	// watch caches are filled after a start, more garbage would leave the heap fragmented.
	busyBytes = 256 << 20
	// defaultPercent is GOGC if it is not set.
	defaultPercent = 100
)

// pacer collects garbage less often while the server is busy. A nil pacer leaves the pace to Go.
// GOMEMLIMIT is observed in any case.
type pacer struct {
	allowed uint64
	wasBusy bool
	pace    *pace
}

// pace passes a pacer's decision to the function that runs after collections.
type pace struct {
	// garbage is the least that is collected, 0 if the server is not busy.
	garbage atomic.Uint64
	stopped atomic.Bool
}

// newPacer returns nil if GOGC is set.
func newPacer() *pacer {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	p := &pacer{allowed: minGarbage, pace: &pace{}}
	if limit := watchcache.ContainerLimit(); limit != math.MaxInt64 {
		p.allowed = min(p.allowed, uint64(limit)/garbagePart)
	}
	p.pace.adjustAfterCollections()
	return p
}

// adjust sets the pace after an interval in which so many bytes were allocated.
func (p *pacer) adjust(allocated, live uint64) {
	if p == nil {
		return
	}
	busy := allocated >= busyBytes
	if busy && p.wasBusy {
		p.pace.garbage.Store(p.allowed)
	} else {
		p.pace.garbage.Store(0)
	}
	p.wasBusy = busy
	setPercent(percentFor(live, p.pace.garbage.Load()))
}

// stop returns to Go's pace with the next collection.
func (p *pacer) stop() {
	if p != nil {
		p.pace.stopped.Store(true)
	}
}

// adjustAfterCollections sets GOGC after the next garbage collection, and after all that follow
// until the pace is stopped: the live heap may have grown.
func (p *pace) adjustAfterCollections() {
	// A cleanup runs after the collection that frees its object.
	cycle := &struct{ _ *byte }{}
	runtime.AddCleanup(cycle, func(p *pace) {
		if p.stopped.Load() {
			setPercent(defaultPercent)
			return
		}
		setPercent(percentFor(readMemory().live, p.garbage.Load()))
		p.adjustAfterCollections()
	}, p)
}

// setPercent sets GOGC if it changes: setting it stops the process for a moment.
func setPercent(percent int) {
	if readPercent() != percent {
		debug.SetGCPercent(percent)
	}
}

func readPercent() int {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}

// percentFor returns the GOGC that makes a heap grow by the larger of itself and of garbage.
func percentFor(live, garbage uint64) int {
	return int(max(defaultPercent, defaultPercent*garbage/max(live, 1<<20)))
}
