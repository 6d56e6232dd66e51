// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
)

// Disk is the space of the volume of the etcd inside the process, in bytes.
type Disk struct{ Free, Size int64 }

const (
	// diskReserve is the free space at which writes are refused. An etcd that cannot write its log
	// ends, and reads with it: it allocates segments of 64 MiB ahead, and deletes need space too.
	diskReserve = 256 << 20
	// minReserves is the minimum size of a volume in reserves. A smaller one has a smaller reserve.
	minReserves = 4
	// diskInterval limits how long a reading of the free space is used for writes.
	diskInterval = 100 * time.Millisecond
)

// Reserve is the free space at which annex refuses writes.
func (d Disk) Reserve() int64 { return min(diskReserve, d.Size/minReserves) }

// Quota returns the size of a database that fits in the volume, at most the given one.
// Defragmentation copies the database, so it is half of the volume, unless the database is larger
// already. The free space does not count: an etcd beyond its quota must be defragmented to
// continue, and other files may be removed.
func (d Disk) Quota(database, most int64) int64 {
	space := d.Size - d.Reserve()
	if database < space/2 {
		space /= 2
	}
	return min(space, most)
}

// disk watches the free space of a volume.
type disk struct {
	read func() (Disk, error)

	mu   sync.Mutex
	at   time.Time
	seen Disk
	low  bool
}

// look returns the free space, and whether it is low. It stays low until a quarter more than the
// reserve is free. If the space cannot be read, the previous reading is used.
func (d *disk) look(now time.Time) (Disk, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.at) < diskInterval {
		return d.seen, d.low
	}
	if seen, err := d.read(); err == nil {
		reserve := seen.Reserve()
		if d.low {
			reserve += reserve / 4
		}
		d.seen, d.low = seen, seen.Free < reserve
	}
	d.at = now
	return d.seen, d.low
}

// lowDisk says what is wrong. It has no number that changes with each probe.
const lowDisk = "the volume of --data-dir is almost full"

// checkDisk refuses operations that put while the volume is almost full. etcd does the same at its
// quota. Only the status of Stores is written, which shows the problem.
func (s *Store) checkDisk(op clientv3.Op) error {
	if s.disk == nil || !putsBeside(op, keys.Root(s.prefix)+"hosting.annex.dev/stores/") {
		return nil
	}
	if _, low := s.disk.look(time.Now()); !low {
		return nil
	}
	if !s.Snapshot().NoSpace {
		s.probeSoon()
	}
	return &NoSpaceError{Store: s.name, Cause: errLowDisk}
}

var errLowDisk = fmt.Errorf("%s: free space there, or enlarge it", lowDisk)

// putsBeside reports whether an operation puts a key without the prefix.
func putsBeside(op clientv3.Op, prefix string) bool {
	if op.IsPut() {
		return !strings.HasPrefix(string(op.KeyBytes()), prefix)
	}
	_, then, otherwise := op.Txn()
	return slices.ContainsFunc(slices.Concat(then, otherwise), func(inner clientv3.Op) bool { return putsBeside(inner, prefix) })
}

// observeDisk adds the volume to a probe.
func (s *Store) observeDisk(seen *Snapshot) {
	if s.disk != nil {
		seen.Disk, seen.LowDisk = s.disk.look(time.Now())
		seen.NoSpace = seen.NoSpace || seen.LowDisk
	}
}

// roomToDefragment returns why the volume has no space for a copy of the database, empty if it has.
func (s *Snapshot) roomToDefragment() string {
	largest := s.Largest()
	if s.Disk.Size == 0 || largest == nil || s.Disk.Free >= largest.DbSizeInUse+s.Disk.Reserve() {
		return ""
	}
	return lowDisk + ", and annex cannot defragment the database there, which needs a copy of it"
}
