// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

const (
	// warmUpTime is the age from which a watch cache answers consistent reads as quickly as
	// etcd. Before, it may wait for etcd, which looks for watches that lag every 100 ms
	// (watchResyncPeriod of etcd's mvcc), and for its first progress request, which upstream
	// sends after 100 ms (k8s.io/apiserver/pkg/storage/cacher/progress).
	warmUpTime = 250 * time.Millisecond
	// readyInterval is how often a watch that waits for the cache checks it.
	readyInterval = 2 * time.Millisecond

	// Up to this size a resource is read from etcd as often as clients ask: it is a page of
	// kubectl's, which upstream too reads from etcd while the cache is not ready.
	smallObjects = 500
	smallBytes   = 4 << 20
)

// warmingCache serves lists of small resources from etcd until the watch cache is warm, and
// watches once it is ready, so that clients of a new CRD do not get 429.
type warmingCache struct {
	storage.Interface
	etcd    storage.Interface
	created time.Time
	isSmall func() bool
}

func newWarmingCache(cached, etcd storage.Interface, isSmall func() bool) *warmingCache {
	return &warmingCache{Interface: cached, etcd: etcd, created: time.Now(), isSmall: isSmall}
}

// isSmall reports whether a resource is known to be small.
func isSmall(store Store, resource schema.GroupResource) bool {
	tracker := store.Usage()
	if tracker == nil || !tracker.HasSynced() {
		return false
	}
	used := tracker.Usage(resource)
	return used.Objects <= smallObjects && used.Bytes <= smallBytes
}

// GetList implements storage.Interface.
func (c *warmingCache) GetList(ctx context.Context, key string, options storage.ListOptions, list runtime.Object) error {
	if options.ResourceVersion == "" && (time.Since(c.created) < warmUpTime || c.ReadinessCheck() != nil) && c.isSmall() {
		return c.etcd.GetList(ctx, key, options, list)
	}
	return c.Interface.GetList(ctx, key, options, list)
}

// Watch implements storage.Interface. Only the cache serves watches, so Watch waits until it
// can have read a small resource.
func (c *warmingCache) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	if c.ReadinessCheck() != nil && c.isSmall() {
		// A cache that is not ready by then returns the error itself.
		_ = wait.PollUntilContextTimeout(ctx, readyInterval, warmUpTime, false, func(context.Context) (bool, error) {
			return c.ReadinessCheck() == nil, nil
		})
	}
	return c.Interface.Watch(ctx, key, options)
}
