// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"strconv"

	"k8s.io/utils/lru"

	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

const (
	// maxRecents bounds the objects of all resources, and maxRecentBytes the JSON of each: 16 MiB together.
	maxRecents     = 256
	maxRecentBytes = 64 << 10
)

// recents has objects as they were last written here. The watch cache receives them later, and clients write again what they
// were just answered. An object that is no longer the stored one costs an attempt.
type recents struct{ objects *lru.Cache }

type recentKey struct {
	of  *endpoint
	key string
}

func newRecents() recents { return recents{lru.New(maxRecents)} }

func (r recents) add(of *endpoint, key string, object *watchcache.Object) {
	if text, err := object.JSON(); err != nil || len(text) > maxRecentBytes {
		r.remove(of, key)
		return
	}
	r.objects.Add(recentKey{of, key}, object.DeepCopyObject())
}

func (r recents) remove(of *endpoint, key string) { r.objects.Remove(recentKey{of, key}) }

// newer returns a newer state of an object, which is nil if the watch cache has none. It returns nil if there is no newer one.
func (r recents) newer(of *endpoint, key string, object *watchcache.Object) *watchcache.Object {
	found, ok := r.objects.Get(recentKey{of, key})
	if !ok {
		return nil
	}
	recent := found.(*watchcache.Object)
	if object != nil && versionOf(object) >= versionOf(recent) {
		return nil
	}
	return recent.DeepCopyObject().(*watchcache.Object)
}

// versionOf returns the resource version, 0 for none.
func versionOf(object *watchcache.Object) uint64 {
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return version
}
