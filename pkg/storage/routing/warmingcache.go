// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

const (
	// warmUpTime is how old a watch cache has to be to answer consistent reads as quickly as
	// etcd. Before, it may have to wait for etcd, which looks every 100 ms for watches
	// that something was written after (watchResyncPeriod of etcd's mvcc), and for its own
	// first question, which upstream asks after 100 ms
	// (k8s.io/apiserver/pkg/storage/cacher/progress).
	warmUpTime = 250 * time.Millisecond
	// readyInterval is how often a watch that waits looks whether the cache is filled.
	readyInterval = 2 * time.Millisecond

	// What is few enough to be read from etcd as often as clients like: a page of kubectl's,
	// which upstream reads from there too while the cache is not filled.
	smallObjects = 500
	smallBytes   = 4 << 20
)

// warmingCache is a watch cache that has etcd answer for it while it fills and is young, if
// that is little work: who makes a definition and uses it at once is not told to come
// again in a second, nor waits for the cache.
type warmingCache struct {
	storage.Interface
	etcd    storage.Interface
	created time.Time
	// isSmall reports whether there are few objects.
	isSmall func() bool
}

func newWarmingCache(cached, etcd storage.Interface, few func() bool) *warmingCache {
	return &warmingCache{Interface: cached, etcd: etcd, created: time.Now(), isSmall: few}
}

// isSmall reports whether a resource has few objects in a Store, as far as that is known.
func (r storageConfig) isSmall(store Store) bool {
	tracker := store.Usage()
	if tracker == nil || !tracker.HasSynced() {
		return false
	}
	there := tracker.Usage(r.config.GroupResource)
	return there.Objects <= smallObjects && there.Bytes <= smallBytes
}

// GetList implements storage.Interface.
func (y *warmingCache) GetList(ctx context.Context, key string, options storage.ListOptions, list runtime.Object) error {
	if options.ResourceVersion == "" && (time.Since(y.created) < warmUpTime || y.ReadinessCheck() != nil) && y.isSmall() {
		return y.etcd.GetList(ctx, key, options, list)
	}
	return y.Interface.GetList(ctx, key, options, list)
}

// Watch implements storage.Interface. There is no watch but of the cache, so it waits for
// that, for as long as one takes that has little to read.
func (y *warmingCache) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	if y.ReadinessCheck() != nil && y.isSmall() {
		// Where it is not ready by then, the cache itself says so.
		_ = wait.PollUntilContextTimeout(ctx, readyInterval, warmUpTime, false, func(context.Context) (bool, error) {
			return y.ReadinessCheck() == nil, nil
		})
	}
	return y.Interface.Watch(ctx, key, options)
}
