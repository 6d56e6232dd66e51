// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/lru"

	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

const (
	// maxRecents bounds the objects of all resources, and maxRecentBytes the JSON of each: 16 MiB together.
	maxRecents     = 256
	maxRecentBytes = 64 << 10
)

// recents has the objects of an endpoint as they were last written here. The watch cache receives them later, and clients
// write again what they were just answered. An object that is no longer the stored one costs an attempt.
type recents struct {
	*sharedRecents
	endpoint uint64
}

// sharedRecents has the objects of all endpoints. It keeps no endpoint, which would keep its watch cache.
type sharedRecents struct {
	objects   *lru.Cache
	endpoints atomic.Uint64
}

type recentKey struct {
	endpoint uint64
	key      string
}

func newSharedRecents() *sharedRecents { return &sharedRecents{objects: lru.New(maxRecents)} }

// ofEndpoint returns the objects of a new endpoint.
func (s *sharedRecents) ofEndpoint() recents { return recents{s, s.endpoints.Add(1)} }

func (r recents) add(key string, object *watchcache.Object) {
	if text, err := object.JSON(); err != nil || len(text) > maxRecentBytes {
		r.remove(key)
		return
	}
	r.objects.Add(recentKey{r.endpoint, key}, object.DeepCopyObject())
}

func (r recents) remove(key string) { r.objects.Remove(recentKey{r.endpoint, key}) }

// newer returns a newer state of an object, which is nil if the watch cache has none. It returns nil if there is no newer one.
func (r recents) newer(key string, object *watchcache.Object) *watchcache.Object {
	found, ok := r.objects.Get(recentKey{r.endpoint, key})
	if !ok {
		return nil
	}
	recent := found.(*watchcache.Object)
	if object != nil {
		if order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), recent.GetResourceVersion()); err != nil || order >= 0 {
			return nil
		}
	}
	return recent.DeepCopyObject().(*watchcache.Object)
}
