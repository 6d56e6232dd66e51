// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"sync"

	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/utils/clock"
)

// compaction compacts an available Store, with upstream's compactor: one of all processes that
// use the etcd, Kubernetes among them, does so each time.
type compaction struct {
	mu       sync.Mutex
	revision int64
	running  compactor
}

// compactor is the type of upstream's.
type compactor interface {
	etcd3.Compactor
	Stop()
}

// CompactRevision implements etcd3.Compactor.
func (c *compaction) CompactRevision() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running != nil {
		c.revision = max(c.revision, c.running.CompactRevision())
	}
	return c.revision
}

// set starts or stops the compactor. Upstream's would log an error every second for an
// unavailable Store.
func (c *compaction) set(on bool, s *Store) {
	if s.pool.config.CompactionInterval == 0 || on == c.isRunning() {
		return
	}
	if !on {
		c.stop()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = etcd3.NewCompactor(s.client.Client, s.pool.config.CompactionInterval, clock.RealClock{}, nil)
}

func (c *compaction) isRunning() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running != nil
}

// stop stops the compactor.
func (c *compaction) stop() {
	c.CompactRevision()
	c.mu.Lock()
	running := c.running
	c.running = nil
	c.mu.Unlock()
	if running != nil {
		running.Stop()
	}
}
