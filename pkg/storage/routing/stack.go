// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/layer/compression"
	"github.com/annex-dev/annex/pkg/storage/layer/corruption"
	"github.com/annex-dev/annex/pkg/storage/layer/freeze"
	"github.com/annex-dev/annex/pkg/storage/layer/limits"
	"github.com/annex-dev/annex/pkg/storage/layer/objectsize"
	"github.com/annex-dev/annex/pkg/storage/layer/revision"
	"github.com/annex-dev/annex/pkg/storage/layer/writeinfo"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// The storage stack of a resource, from the registry's store down to etcd. A layer knows
// only the interface that it wraps; their order is known here alone, and each wrapper is in
// this list. Upstream's layers are marked with *.
//
// Storage, which has objects:
//
//	 1. lazyStorage            finds the Store through the HostedResource when it is first used:
//	                           upstream creates storage before a Store is chosen
//	 2. writeinfo              describes a write to the layers below etcd3
//	 3. objectsize.Storage     waits for memory before a large object is read to be changed
//	 4. Form.Storage           custom resources and CRDs: decodes what is read from the watch cache,
//	                           which has no decoded objects
//	 5. ConsistentReads        custom resources: answers consistent reads of an object from the cache,
//	                           and evaluates selectors of names
//	 6. lazyCache              creates the watch cache when it is first needed, drops the cache of a
//	                           custom resource if there is too little memory, and reads etcd without it
//	 7. corruption.Cached      reports lists of the watch cache that fail
//	 8. Memory.Lists           custom resources: answers lists from objects in order
//	 9. cacher*                answers reads from memory
//	10. filling                what the watch cache reads: in turn with others, with the history that
//	                           watches need; reports why it fails
//	11. Memory.Source          custom resources: accounts for the objects, compresses them, and
//	                           reports the errors of watches;
//	    watched                the errors of watches, for decoded objects
//	12. corruption.Storage     names the objects that make a read of etcd fail
//	13. etcd3*                 encodes objects, and deletes those that cannot be read
//
// The codecs of 13 are Form.Codec over corruption.Codec over Resource.DecodedCodec over upstream's. Form, ConsistentReads,
// Memory and Resource are of pkg/storage/watchcache.
//
// Transformers, which have values:
//
//	14. corruption.Transformer records values that cannot be read, whatever the reason below
//	15. objectsize.Transformer limits the size of the encoded object, before compression
//	16. compression            compresses; ciphertext would not compress
//	17. encryption*            encrypts
//
// compression.Manager.Transformer composes 16 and 17, also for backups and moves.
//
// Clients, which have keys and values:
//
//	18. sinceKV                reads at an earlier revision for 10
//	19. latency tracker*       adds the time that etcd took to the audit log
//	20. revision               shifts revisions of a restored resource; all below see etcd's revisions
//	21. limits                 counts what is really stored: compressed and encrypted
//	22. freeze                 refuses writes while the resource is moved, including writes of 21, and
//	                           all requests and watches once it is served from another Store
//	23. stream                 gives the resource a watch stream of its own
//	24. stores.Store           the client of the Store that all its resources share
//
// A new layer is a package, a line in this list and in the code below, and if it has state
// of the whole process a field of Layers.

// Layers holds what the layers of all resources share.
type Layers struct {
	// MaxObjectBytes is the maximum size of an encoded object.
	MaxObjectBytes int64
	// ObjectBudget bounds the memory of large objects.
	ObjectBudget *objectsize.Budget
	// Compression has the dictionaries.
	Compression *compression.Manager
	// DefaultCompression applies to resources whose HostedResource sets none.
	DefaultCompression hostingv1alpha1.Compression
	// Unreadable collects the objects that cannot be read.
	Unreadable *corruption.Registry
	// Caches has the watch caches of custom resources.
	Caches *watchcache.Budget
	// OwnTokens is set if another server may serve custom resources before or after annex: their continue
	// tokens are then valid in annex only, and no others are.
	OwnTokens bool
	// fills bounds the caches that are filled at the same time.
	fills fills
}

// storageConfig describes the storage of a resource in any Store.
type storageConfig struct {
	Layers
	*storagebackend.ConfigForResource
	resourcePrefix string
	keyFunc        func(obj runtime.Object) (string, error)
	newFunc        func() runtime.Object
	newListFunc    func() runtime.Object
	attrs          storage.AttrFunc
	triggers       storage.IndexerFuncs
	indexers       *cache.Indexers
	cached         bool
	// eager is set if the watch cache is created at once.
	eager bool
	// custom is set if the watch cache has Objects of the custom resource, and packed if it has Packed ones.
	custom *watchcache.Resource
	packed bool
	// definition defines the resource; nil for a compiled-in one.
	definition *apiextensionsv1.CustomResourceDefinition
	// compress reports whether values are to be compressed, and limits returns the limits
	// of the HostedResource.
	compress func() bool
	limits   func() limits.Limits
	// placed reports whether the resource is at a location, by the server.
	placed func(ctx context.Context, at location) (bool, error)
}

// setCodec replaces the codec. Copies of the config share what is not replaced.
func (c *storageConfig) setCodec(codec runtime.Codec) {
	config := *c.ConfigForResource
	config.Codec = codec
	c.ConfigForResource = &config
}

var versioner storage.Versioner = storage.APIObjectVersioner{}

// backend is the storage of a resource in a Store: all layers but the first.
type backend struct {
	storage.Interface
	// kept reads objects as the watch cache keeps them: Objects, Packed ones, or decoded ones.
	kept storage.Interface
	// writes creates, updates and deletes objects in the form of kept. It has no watch cache.
	writes   storage.Interface
	store    Store
	location location
	cached   bool
	latest   latest
	// changed is closed when the Store no longer serves the resource as it did; nil if it always
	// does.
	changed <-chan struct{}
	// closers end the layers, in the order in which these were built.
	closers []func()
	once    sync.Once
}

// destroy ends the layers. All endpoints of a resource share a backend, and each destroys it.
func (b *backend) destroy() {
	b.once.Do(func() {
		for _, closeLayer := range slices.Backward(b.closers) {
			closeLayer()
		}
	})
}

func (b *backend) onDestroy(closeLayer func()) { b.closers = append(b.closers, closeLayer) }

// isStale reports whether the Store was deleted or replaced, or serves the resource no longer: the
// watch cache has objects that are no longer there.
func (b *backend) isStale() bool { return isClosed(b.store.Done()) || isClosed(b.changed) }

// canServeReads reports whether the watch cache can serve reads while the Store is unavailable.
func (b *backend) canServeReads() bool { return b.cached && b.ReadinessCheck() == nil }

// build builds the layers 24 to 2 in the Store of a location.
func (c storageConfig) build(ctx context.Context, store Store, at location) (_ *backend, err error) {
	b := &backend{store: store, location: at, cached: c.cached}
	defer func() {
		if err != nil {
			b.destroy()
		}
	}()
	client, compactor, err := b.buildClient(ctx, c)
	if err != nil {
		return nil, err
	}
	limiter := objectsize.NewLimiter(objectsize.Config{
		Resource: c.GroupResource, Store: store.Name(), Prefix: store.Prefix(), MaxBytes: c.MaxObjectBytes, Budget: c.ObjectBudget,
		Definition: c.definition,
	})
	if c.custom != nil {
		c.setCodec(c.custom.DecodedCodec(c.Codec)) // 13
	}
	detector := corruption.New(corruption.Config{
		Resource: c.GroupResource, Prefix: store.Prefix(), ResourcePrefix: c.resourcePrefix,
		Codec: c.Codec, New: c.newFunc, Registry: c.Unreadable,
	})
	b.onDestroy(detector.Close)
	transformer, release := c.Compression.Transformer(compression.Resource{ // 17, 16
		GroupResource: c.GroupResource, Store: store.Name(), Prefix: store.Prefix(), KV: store.Client().KV,
		Encryption: c.Transformer, Enabled: c.compress,
	})
	b.onDestroy(release)
	transformer = limiter.Transformer(transformer)  // 15
	transformer = detector.Transformer(transformer) // 14
	c.setCodec(detector.Codec())                    // 13
	below := lower{client, compactor, transformer, detector}
	if b.Interface, err = b.buildEtcd(c, below); err != nil { // 13, 12
		return nil, err
	}
	if err := b.addCache(c, below); err != nil { // 13 to 4
		return nil, err
	}
	describe := func(inner storage.Interface) storage.Interface { return writeinfo.Storage(limiter.Storage(inner)) } // 2, 3
	b.Interface, b.writes = describe(b.Interface), describe(b.writes)
	return b, nil
}

// buildClient returns a client of the resource's own. It has no connection: its requests go
// through the client of the Store.
func (b *backend) buildClient(ctx context.Context, c storageConfig) (*kubernetes.Client, etcd3.Compactor, error) {
	shared, prefix, resource := b.store.Client(), b.store.Prefix(), c.GroupResource // 24
	state, err := c.openState(ctx, b.store, b.location)
	if err != nil {
		return nil, nil, fmt.Errorf("read the revision offset of %s in Store %s: %w", resource, b.store.Name(), err)
	}
	lifetime, cancel := context.WithCancel(context.Background())
	b.onDestroy(cancel)
	base := clientv3.NewCtxClient(lifetime)
	base.Lease, base.Maintenance = shared.Lease, shared.Maintenance
	b.latest.offset = state.Offset
	base.Watcher = newStream(shared.Watcher, shared.KV, resource.String(), &b.latest) // 23
	base.KV = shared.KV
	if !c.eager { // nothing moves or restores compiled-in resources
		gate := freeze.NewGate(freeze.Target{KV: shared.KV, Prefix: prefix, Resource: resource}, state)
		b.changed = gate.Changed()
		base.KV, base.Watcher = gate.KV(), gate.Watcher(base.Watcher) // 22
	}
	var release func()
	base.KV, release = limits.KV(limits.Config{ // 21
		KV: base.KV, Prefix: prefix, Resource: resource, Usage: b.store.Usage(), Limits: c.limits,
	})
	b.onDestroy(release)
	client := revision.Client(&kubernetes.Client{Client: base}, state.Offset) // 20
	client.KV = sinceKV{etcd3.NewETCDLatencyTracker(client.KV)}               // 19, 18
	client.Kubernetes = client
	return client, revision.Compactor(b.store.Compactor(), state.Offset), nil
}

// lower has the layers below 12.
type lower struct {
	client      *kubernetes.Client
	compactor   etcd3.Compactor
	transformer value.Transformer
	detector    *corruption.Detector
}

// buildEtcd builds the layers 13 and 12.
func (b *backend) buildEtcd(c storageConfig, below lower) (storage.Interface, error) {
	decoder := below.detector.Decoder(etcd3.NewDefaultDecoder(c.Codec, versioner))
	raw, err := etcd3.New(below.client, below.compactor, c.Codec, c.newFunc, c.newListFunc, b.store.Prefix(),
		c.resourcePrefix, c.GroupResource, below.transformer, c.LeaseManagerConfig, decoder, versioner)
	if err != nil {
		return nil, fmt.Errorf("create the storage of %s in Store %s: %w", c.GroupResource, b.store.Name(), err)
	}
	b.onDestroy(raw.Close)
	var etcd storage.Interface = raw
	if utilfeature.DefaultFeatureGate.Enabled(features.AllowUnsafeMalformedObjectDeletion) {
		etcd = etcd3.NewStoreWithUnsafeCorruptObjectDeletion(raw, c.GroupResource)
	}
	return below.detector.Storage(etcd), nil
}

// form returns how the watch cache keeps objects, or nil if it has decoded ones.
func (c storageConfig) form() (*watchcache.Form, error) {
	switch {
	case c.custom != nil:
		form := c.custom.Form(c.Codec)
		return &form, nil
	case c.packed:
		packing, err := watchcache.NewPacking(c.Codec, c.newFunc, c.attrs)
		if err != nil {
			return nil, err
		}
		form := packing.Form()
		return &form, nil
	}
	return nil, nil
}

// addCache adds the layers 13 to 4 of the watch cache. One that has no decoded objects reads etcd through an etcd3
// of its own.
func (b *backend) addCache(c storageConfig, below lower) error {
	form, err := c.form()
	if err != nil {
		return err
	}
	b.kept = b.Interface
	if form != nil {
		c.newFunc, c.newListFunc, c.attrs = form.NewObject, form.NewList, form.CacheAttrs
		c.triggers, c.indexers = nil, nil
		c.setCodec(form.Codec)
		if b.kept, err = b.buildEtcd(c, below); err != nil { // 13, 12
			return err
		}
	}
	b.writes = b.kept
	if !c.cached {
		return nil
	}
	etcd, lazy := b.kept, newLazyCache(b.kept, lazyCacheConfig{ // 6
		usage: usageOf(b.store, c.GroupResource), closed: b.changed, prefix: c.resourcePrefix,
	})
	lazy.config.create = func(since []uint64, kept hostingv1alpha1.Cache, dropped <-chan struct{}) (*filledCache, error) {
		if c.custom != nil {
			return b.createCustomCache(c, below, lazy, since, kept, dropped)
		}
		return c.createCache(etcd, below.detector, nil, lazy, since, dropped) // 10 to 7
	}
	b.onDestroy(lazy.destroy)
	b.kept = lazy
	switch {
	case c.eager: // readiness waits for the cache
		_, err = lazy.get(context.Background(), 0)
	case c.custom != nil:
		err = lazy.Apply(context.Background(), c.Caches.Form(c.GroupResource))
		b.onDestroy(c.Caches.Add(c.GroupResource, lazy))
		b.kept = watchcache.ConsistentReads(lazy, etcd, below.client.KV, b.store.Prefix()) // 5
	}
	if form != nil {
		b.Interface = form.Storage(b.Interface, b.kept) // 4
	} else {
		b.Interface = b.kept
	}
	return err
}

// createCustomCache creates the layers 13 to 7 of the watch cache of a custom resource, which is destroyed before
// the others. It has an etcd3 of its own, because that estimates the sizes of objects for one cache only.
func (b *backend) createCustomCache(
	c storageConfig, below lower, lazy *lazyCache, since []uint64, kept hostingv1alpha1.Cache, dropped <-chan struct{},
) (_ *filledCache, err error) {
	layers := &backend{store: b.store}
	defer func() {
		if err != nil {
			layers.destroy()
		}
	}()
	etcd, err := layers.buildEtcd(c, below) // 13, 12
	if err != nil {
		return nil, err
	}
	memory := watchcache.NewMemory(c.custom, c.keyFunc, func() *compression.Dictionary {
		return c.Compression.Dictionary(context.Background(), b.store.Name(), c.GroupResource, b.store.Client().KV)
	}, c.Caches.Notify)
	layers.onDestroy(memory.Close)
	memory.Compress(kept == hostingv1alpha1.CacheCompressed)
	c.keyFunc, c.indexers = memory.Key, memory.Indexers()
	made, err := c.createCache(etcd, below.detector, memory, lazy, since, dropped) // 11 to 7
	if err != nil {
		return nil, err
	}
	layers.onDestroy(made.destroy)
	made.destroy = layers.destroy
	return made, nil
}

// createCache creates the layers 11 to 7 over etcd for a lazyCache, with the history since the first of some
// revisions that etcd has. memory is nil unless the cache has Objects.
func (c storageConfig) createCache(
	etcd storage.Interface, detector *corruption.Detector, memory *watchcache.Memory, lazy *lazyCache, since []uint64, dropped <-chan struct{},
) (*filledCache, error) {
	source := c.newFilling(etcd, detector, since, lazy, dropped) // 10
	switch {
	case memory != nil:
		source.Interface = memory.Source(etcd, source.failLate) // 11
	case !c.eager:
		source.Interface = watched{etcd, source.failLate} // 11
	}
	watchCache, err := cacher.NewCacherFromConfig(cacher.Config{ // 9
		Storage:             source,
		Versioner:           versioner,
		GroupResource:       c.GroupResource,
		EventsHistoryWindow: c.EventsHistoryWindow,
		ResourcePrefix:      c.resourcePrefix,
		KeyFunc:             c.keyFunc,
		NewFunc:             c.newFunc,
		NewListFunc:         c.newListFunc,
		GetAttrsFunc:        c.attrs,
		IndexerFuncs:        c.triggers,
		Indexers:            c.indexers,
		Codec:               c.Codec,
	})
	if err != nil {
		source.end()
		return nil, fmt.Errorf("create the watch cache of %s: %w", c.GroupResource, err)
	}
	delegator := cacher.NewCacheDelegator(watchCache, etcd) // 9
	var cached storage.Interface = delegator
	if memory != nil {
		cached = memory.Lists(delegator, watchCache, c.GroupResource, c.resourcePrefix) // 8
	}
	following := source.follow(c, watchCache, etcd)
	return &filledCache{
		Interface: detector.Cached(cached), // 7
		cacher:    watchCache,
		memory:    memory,
		created:   time.Now(),
		current:   source.current,
		attempt:   &source.attempt,
		destroy: func() {
			source.end()
			delegator.Stop()
			watchCache.Stop()
			following.Wait()
		},
	}, nil
}
