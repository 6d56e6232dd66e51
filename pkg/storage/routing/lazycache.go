// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/util/flowcontrol"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

const (
	// warmUpTime is the age from which a watch cache answers consistent reads as quickly as
	// etcd. Before, it may wait for etcd, which looks for watches that lag every 100 ms
	// (watchResyncPeriod of etcd's mvcc), and for its first progress request, which upstream
	// sends after 100 ms (k8s.io/apiserver/pkg/storage/cacher/progress).
	warmUpTime = 250 * time.Millisecond

	// Up to this size a resource is read from etcd for each request: it is a page of kubectl's,
	// which upstream too reads from etcd while the cache is not ready.
	smallObjects = 500
	smallBytes   = 4 << 20
	// smallTimeout bounds the wait of a watch of such a resource before it is answered: without a
	// resource version it begins with the objects of the time when the cache is filled.
	smallTimeout = 5 * time.Second

	// A whole list waits this long for the cache to be filled, which costs less than reading
	// everything from etcd for each client. waitingLists bounds the lists that wait, because
	// each has a seat of priority and fairness.
	listTimeout  = 30 * time.Second
	waitingLists = 16

	// A cache has the history of usualHistory revisions of the Store before its creation: a client
	// may have read or written without it, and watch from there. A watch that creates it may
	// begin up to maxHistory before.
	usualHistory = 1000
	maxHistory   = 100_000
)

// lazyCache is the watch cache of a resource. It is created when it is first needed: by a watch,
// or by a read unless the resource is known to be empty. Until it is filled, lists of pages and
// of small resources are read from etcd, and whole lists and watches wait, where upstream
// answers 429.
//
// The cache of a custom resource can be dropped, and created again. Without it reads and watches go to
// etcd, as upstream's do with --watch-cache=false.
type lazyCache struct {
	// Interface is etcd.
	storage.Interface
	config lazyCacheConfig
	cache  atomic.Pointer[filledCache]
	// form is the hostingv1alpha1.Cache in which the cache keeps objects.
	form atomic.Value

	// changing is the lock for creating, converting and dropping the cache.
	changing sync.Mutex
	// ended is set once there is no cache any more.
	ended bool

	// lists is a semaphore of the lists that wait.
	lists chan struct{}
}

type lazyCacheConfig struct {
	// create creates the cache, with the history since the first of some revisions that etcd has.
	// dropped is closed before the cache is destroyed.
	create func(since []uint64, form hostingv1alpha1.Cache, dropped <-chan struct{}) (*filledCache, error)
	// usage returns the number of objects and their size, if known.
	usage func() (objects, bytes int64, known bool)
	// closed is closed when the Store no longer serves the resource; it may be nil.
	closed <-chan struct{}
	// prefix is the key of all objects.
	prefix string
}

// filledCache is a watch cache that is filled, or being filled.
type filledCache struct {
	storage.Interface
	cacher *cacher.Cacher
	// memory is nil for compiled-in resources.
	memory  *watchcache.Memory
	created time.Time
	// current is closed once the cache has caught up with etcd for the first time. A filled cache
	// lags at first, because it begins with history.
	current chan struct{}
	// dropped is closed when the cache is no longer used.
	dropped chan struct{}
	// attempt is the last attempt to fill the cache.
	attempt *atomic.Pointer[attempt]
	destroy func()
}

// ReadinessCheck implements storage.Interface.
func (c *filledCache) ReadinessCheck() error {
	select {
	case <-c.current:
		return c.Interface.ReadinessCheck()
	default:
		return storage.ErrStorageNotReady
	}
}

// failure returns why the last attempt to fill the cache has failed, or nil.
func (c *filledCache) failure() error {
	if last := c.attempt.Load(); isClosed(last.failed) && c.ReadinessCheck() != nil {
		return last.err
	}
	return nil
}

// wait waits until the cache is filled.
func (c *filledCache) wait(ctx context.Context) error {
	select {
	case <-c.current:
		return c.cacher.Wait(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newLazyCache(etcd storage.Interface, config lazyCacheConfig) *lazyCache {
	return &lazyCache{Interface: etcd, config: config, lists: make(chan struct{}, waitingLists)}
}

// usageOf returns a function for lazyCacheConfig.usage.
func usageOf(store Store, resource schema.GroupResource) func() (objects, bytes int64, known bool) {
	return func() (objects, bytes int64, known bool) {
		tracker := store.Usage()
		if tracker == nil || !tracker.HasSynced() {
			return 0, 0, false
		}
		used := tracker.Usage(resource)
		return used.Objects, used.Bytes, true
	}
}

func (c *lazyCache) isSmall() bool {
	objects, bytes, known := c.config.usage()
	return known && objects <= smallObjects && bytes <= smallBytes
}

func (c *lazyCache) isEmpty() bool {
	objects, _, known := c.config.usage()
	return known && objects == 0
}

// get returns the cache, or nil if there is none. It creates it for a watch from a revision, which is 0 for reads.
func (c *lazyCache) get(ctx context.Context, from uint64) (*filledCache, error) {
	if made := c.cache.Load(); made != nil || c.isOff() {
		return made, nil
	}
	since := c.history(ctx, from)
	c.changing.Lock()
	defer c.changing.Unlock()
	if made := c.cache.Load(); made != nil || c.isOff() {
		return made, nil
	}
	dropped := make(chan struct{})
	form, _ := c.form.Load().(hostingv1alpha1.Cache)
	made, err := c.config.create(since, form, dropped)
	if err != nil {
		return nil, err
	}
	made.dropped = dropped
	c.cache.Store(made)
	return made, nil
}

// isOff reports whether there is to be no cache.
func (c *lazyCache) isOff() bool {
	return c.cache.Load() == nil && c.form.Load() == hostingv1alpha1.CacheNone
}

// history returns the revisions from which the cache is to have history, the best first. etcd
// may have compacted them.
func (c *lazyCache) history(ctx context.Context, from uint64) []uint64 {
	now, err := c.GetCurrentResourceVersion(ctx)
	if err != nil {
		return nil // the history begins when the cache is filled
	}
	if from == 0 || from > now || now-from > maxHistory {
		from = now
	}
	usual := max(now, usualHistory+1) - usualHistory
	return []uint64{min(from, max(usual, uint64(max(c.Interface.CompactRevision(), 0)))), from, now}
}

// Apply implements watchcache.Budgeted.
func (c *lazyCache) Apply(ctx context.Context, form hostingv1alpha1.Cache) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	if c.ended {
		return nil
	}
	c.form.Store(form)
	compressed := form == hostingv1alpha1.CacheCompressed
	switch made := c.cache.Load(); {
	case form == hostingv1alpha1.CacheNone:
		c.drop()
	case made == nil:
	case made.ReadinessCheck() != nil:
		made.memory.Compress(compressed) // what it will read
	default:
		return made.memory.SetCompressed(ctx, compressed, made, c.config.prefix)
	}
	return nil
}

// Usage implements watchcache.Budgeted.
func (c *lazyCache) Usage() watchcache.Usage {
	if made := c.cache.Load(); made != nil {
		return made.memory.Usage()
	}
	return watchcache.Usage{}
}

// drop ends the cache and its watches: their clients continue with etcd, from the resource
// version that they have. It requires c.changing.
func (c *lazyCache) drop() {
	if made := c.cache.Swap(nil); made != nil {
		close(made.dropped)
		made.destroy()
	}
}

// destroy drops the cache and prevents the creation of another.
func (c *lazyCache) destroy() {
	c.changing.Lock()
	defer c.changing.Unlock()
	c.form.Store(hostingv1alpha1.CacheNone)
	c.ended = true
	c.drop()
}

// hasEnded reports whether a cache will not be filled any more.
func (c *lazyCache) hasEnded(cache *filledCache) bool {
	return isClosed(cache.dropped) || isClosed(c.config.closed)
}

// read calls read with the cache, or with nil if there is none, and again if it returns an error and the cache was
// dropped meanwhile.
func (c *lazyCache) read(ctx context.Context, from uint64, read func(*filledCache) error) error {
	for {
		cache, err := c.get(ctx, from)
		if err != nil {
			return err
		}
		if err := read(cache); err == nil || cache == nil || !isClosed(cache.dropped) {
			return err
		}
	}
}

func isClosed(signal <-chan struct{}) bool {
	select {
	case <-signal:
		return true
	default:
		return false
	}
}

// wait waits until the cache is filled, will not be any more, or ctx is done. It returns why the attempt to
// fill it has failed.
func (c *lazyCache) wait(ctx context.Context, cache *filledCache) error {
	attempt := cache.attempt.Load()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		select {
		case <-attempt.failed:
		case <-cache.dropped:
		case <-c.config.closed:
		case <-ctx.Done():
		}
	}()
	if cache.wait(ctx) != nil && isClosed(attempt.failed) && !c.hasEnded(cache) {
		return attempt.err
	}
	return nil
}

// Get implements storage.Interface.
func (c *lazyCache) Get(ctx context.Context, key string, options storage.GetOptions, out runtime.Object) error {
	if c.isOff() {
		return c.Interface.Get(ctx, key, options, out)
	}
	// As the watch cache does: etcd's storage has another error.
	if _, err := c.Versioner().ParseResourceVersion(options.ResourceVersion); err != nil {
		return err
	}
	if options.ResourceVersion == "" || c.cache.Load() == nil && c.isEmpty() {
		return c.Interface.Get(ctx, key, options, out)
	}
	return c.read(ctx, 0, func(cache *filledCache) error {
		if cache == nil || cache.ReadinessCheck() != nil {
			return c.Interface.Get(ctx, key, options, out)
		}
		return cache.Get(ctx, key, options, out)
	})
}

// GetList implements storage.Interface.
func (c *lazyCache) GetList(ctx context.Context, key string, options storage.ListOptions, list runtime.Object) error {
	if c.cache.Load() == nil && c.isEmpty() {
		return c.Interface.GetList(ctx, key, options, list)
	}
	return c.read(ctx, 0, func(cache *filledCache) error { return c.list(ctx, cache, key, options, list) })
}

func (c *lazyCache) list(ctx context.Context, cache *filledCache, key string, options storage.ListOptions, list runtime.Object) error {
	if cache == nil {
		return c.Interface.GetList(ctx, key, options, list)
	}
	filled := cache.ReadinessCheck() == nil
	warm := filled && (options.ResourceVersion != "" || time.Since(cache.created) >= warmUpTime)
	if !warm && c.isSmall() || !filled && isPage(options) {
		return c.Interface.GetList(ctx, key, options, list)
	}
	if !filled {
		if err := c.waitToList(ctx, cache); err != nil {
			return err
		}
		if c.hasEnded(cache) {
			return c.Interface.GetList(ctx, key, options, list)
		}
	}
	return cache.GetList(ctx, key, options, list)
}

// isPage reports whether etcd can answer a list without reading much more.
func isPage(options storage.ListOptions) bool {
	selection := options.Predicate
	return selection.Limit > 0 && (selection.Label == nil || selection.Label.Empty()) && (selection.Field == nil || selection.Field.Empty())
}

// waitToList waits until the cache is filled, and returns why that has failed. If it is not filled in time,
// the cache returns the error.
func (c *lazyCache) waitToList(ctx context.Context, cache *filledCache) error {
	select {
	case c.lists <- struct{}{}:
		defer func() { <-c.lists }()
	default:
		return cache.failure()
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return c.wait(ctx, cache)
}

// Watch implements storage.Interface. If there is a cache, only that serves watches: it answers at once, and
// sends events when it is filled.
func (c *lazyCache) Watch(ctx context.Context, key string, options storage.ListOptions) (events watch.Interface, err error) {
	from, err := c.Versioner().ParseResourceVersion(options.ResourceVersion)
	if err != nil {
		return nil, err
	}
	err = c.read(ctx, from, func(cache *filledCache) error {
		events, err = c.watch(ctx, cache, key, options)
		return err
	})
	return events, err
}

func (c *lazyCache) watch(ctx context.Context, cache *filledCache, key string, options storage.ListOptions) (watch.Interface, error) {
	if cache == nil {
		return c.Interface.Watch(ctx, key, options)
	}
	if err := cache.failure(); err != nil {
		return nil, err
	}
	if cache.ReadinessCheck() != nil && c.isSmall() {
		short, cancel := context.WithTimeout(ctx, smallTimeout)
		defer cancel()
		if err := c.wait(short, cache); err != nil {
			return nil, err
		}
	}
	if cache.ReadinessCheck() == nil {
		return cache.Watch(ctx, key, options)
	}
	// It needs no seat of priority and fairness while it waits.
	flowcontrol.WatchInitialized(ctx)
	return watchcache.ForwardLater(ctx, func(ctx context.Context) (watch.Interface, error) {
		if err := c.wait(ctx, cache); err != nil {
			return nil, err
		}
		if c.hasEnded(cache) {
			return watch.NewEmptyWatch(), nil // the client opens it again
		}
		return cache.Watch(ctx, key, options)
	}), nil
}

// current returns the cache, or etcd without one.
func (c *lazyCache) current() storage.Interface {
	if made := c.cache.Load(); made != nil {
		return made
	}
	return c.Interface
}

// Delete implements storage.Interface.
func (c *lazyCache) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, options storage.DeleteOptions,
) error {
	return c.current().Delete(ctx, key, out, preconditions, validate, cached, options)
}

// GuaranteedUpdate implements storage.Interface.
func (c *lazyCache) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	return c.current().GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, update, cached)
}

// ReadinessCheck implements storage.Interface.
func (c *lazyCache) ReadinessCheck() error {
	if made := c.cache.Load(); made != nil {
		return made.ReadinessCheck()
	}
	return storage.ErrStorageNotReady
}

// Stats implements storage.Interface.
func (c *lazyCache) Stats(ctx context.Context) (storage.Stats, error) { return c.current().Stats(ctx) }

// CompactRevision implements storage.Interface.
func (c *lazyCache) CompactRevision() int64 { return c.current().CompactRevision() }
