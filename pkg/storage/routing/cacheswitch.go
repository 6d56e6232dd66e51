// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// cacheSwitch is a watch cache of encoded objects that can be dropped and created again. Without
// it reads and watches go to etcd, as upstream's do with --watch-cache=false.
type cacheSwitch struct {
	storage.Interface // etcd
	// build builds a watch cache.
	build  func(compressed bool) (*encodedCache, error)
	prefix string

	// mu is held while the cache is built and closed.
	mu     sync.Mutex
	closed bool
	cache  atomic.Pointer[encodedCache]
}

// encodedCache is a watch cache with its accounting.
type encodedCache struct {
	storage.Interface
	memory  *watchcache.Memory
	destroy func()
}

// Apply implements watchcache.Budgeted.
func (s *cacheSwitch) Apply(ctx context.Context, form hostingv1alpha1.Cache) error {
	compressed := form == hostingv1alpha1.CacheCompressed
	s.mu.Lock()
	defer s.mu.Unlock()
	cache := s.cache.Load()
	switch {
	case s.closed:
		return nil
	case form == hostingv1alpha1.CacheNone:
		s.drop()
		return nil
	case cache != nil && cache.ReadinessCheck() != nil:
		cache.memory.Compress(compressed) // what it will read: to list it would create it
		return nil
	case cache != nil:
		return cache.memory.SetCompressed(ctx, compressed, cache, s.prefix)
	}
	built, err := s.build(compressed)
	if err == nil {
		s.cache.Store(built)
	}
	return err
}

// drop ends the cache and its watches: their clients continue with etcd, from the resource
// version that they have. It requires s.mu.
func (s *cacheSwitch) drop() {
	if dropped := s.cache.Swap(nil); dropped != nil {
		dropped.destroy()
	}
}

func (s *cacheSwitch) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.drop()
}

// Usage implements watchcache.Budgeted.
func (s *cacheSwitch) Usage() watchcache.Usage {
	if cache := s.cache.Load(); cache != nil {
		return cache.memory.Usage()
	}
	return watchcache.Usage{}
}

func (s *cacheSwitch) current() storage.Interface {
	if cache := s.cache.Load(); cache != nil {
		return cache
	}
	return s.Interface
}

// read calls read with the current storage, and again if that was dropped meanwhile and returns an error.
func (s *cacheSwitch) read(read func(storage.Interface) error) error {
	for {
		cache := s.cache.Load()
		if cache == nil {
			return read(s.Interface)
		}
		if err := read(cache); err == nil || s.cache.Load() == cache {
			return err
		}
	}
}

// Get implements storage.Interface.
func (s *cacheSwitch) Get(ctx context.Context, key string, options storage.GetOptions, out runtime.Object) error {
	return s.read(func(from storage.Interface) error { return from.Get(ctx, key, options, out) })
}

// GetList implements storage.Interface.
func (s *cacheSwitch) GetList(ctx context.Context, key string, options storage.ListOptions, list runtime.Object) error {
	return s.read(func(from storage.Interface) error { return from.GetList(ctx, key, options, list) })
}

// Watch implements storage.Interface.
func (s *cacheSwitch) Watch(ctx context.Context, key string, options storage.ListOptions) (events watch.Interface, err error) {
	err = s.read(func(from storage.Interface) error {
		events, err = from.Watch(ctx, key, options)
		return err
	})
	return events, err
}

// ReadinessCheck implements storage.Interface. Without a cache none is ready.
func (s *cacheSwitch) ReadinessCheck() error {
	if cache := s.cache.Load(); cache != nil {
		return cache.ReadinessCheck()
	}
	return storage.ErrStorageNotReady
}

// Stats implements storage.Interface.
func (s *cacheSwitch) Stats(ctx context.Context) (storage.Stats, error) {
	return s.current().Stats(ctx)
}

// CompactRevision implements storage.Interface.
func (s *cacheSwitch) CompactRevision() int64 { return s.current().CompactRevision() }
