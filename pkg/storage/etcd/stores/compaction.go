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
	running  interface { // upstream's, nil while the Store is unavailable
		etcd3.Compactor
		Stop()
	}
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
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case on && c.running == nil && s.pool.config.CompactionInterval > 0:
		c.running = etcd3.NewCompactor(s.client.Client, s.pool.config.CompactionInterval, clock.RealClock{}, nil)
	case !on && c.running != nil:
		c.revision = max(c.revision, c.running.CompactRevision())
		c.running.Stop()
		c.running = nil
	}
}
