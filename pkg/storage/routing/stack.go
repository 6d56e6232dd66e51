// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"fmt"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
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
// only the interface that it wraps; their order is known here alone. Upstream's layers are
// marked with *.
//
// Storage, which has objects:
//
//	 1. lazyStorage            finds the Store through the HostedResource when it is first used:
//	                           upstream asks for storage before a Store is chosen
//	 2. writeinfo              describes a write to the layers below etcd3
//	 3. objectsize.Storage     waits for memory before a large object is read to be changed
//	 4. encoded                custom resources: decodes what upstream's handler reads from the watch
//	                           cache, and answers consistent reads of an object from the cache;
//	                           CRDs: decodes what is read from the watch cache
//	 5. lazyCache              creates the watch cache when it is first needed, and reads etcd until
//	                           it is filled
//	 6. corruption.Cached      reports lists of the watch cache that fail
//	 7. cacher*                answers reads from memory; of custom resources encoded answers lists
//	 8. corruption.Storage     names the objects that make a read of etcd fail
//	 9. etcd3*                 encodes objects, and deletes those that cannot be read
//
// Transformers, which have values:
//
//	10. corruption.Transformer records values that cannot be read, whatever the reason below
//	11. objectsize.Transformer limits the size of the encoded object, before compression
//	12. compression            compresses; ciphertext would not compress
//	13. encryption*            encrypts
//
// Clients, which have keys and values:
//
//	14. latency tracker*       adds the time that etcd took to the audit log
//	15. revision               shifts revisions of a restored resource; all below see those of etcd
//	16. limits                 counts what is really stored: compressed and encrypted
//	17. freeze                 refuses writes while the resource is moved, those of 16 included, and
//	                           all requests and watches once it is served from another Store
//	18. stream                 gives the resource a watch stream of its own
//	19. stores.Store           the client of the Store that all its resources share
//
// A new layer is a package, a line in this list and in the code below, and if it has state
// of the whole process a field of Layers.

// Layers holds what the layers of all resources share.
type Layers struct {
	// MaxObjectBytes is the maximum size of an encoded object.
	MaxObjectBytes int64
	// ObjectBudget bounds the memory of large objects.
	ObjectBudget *objectsize.Budget
	// Compression has the dictionaries. With nil nothing is compressed.
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
	// encoded is set if the watch cache has encoded objects, and memory is the part of it that is
	// annex's.
	encoded *watchcache.Resource
	memory  *watchcache.Memory
	// packed is set if the watch cache has packed objects.
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
	// encoded reads encoded objects, if storageConfig.encoded is set, or packed ones, if packed is.
	encoded  storage.Interface
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

// build builds the layers 18 to 2 in the Store of a location.
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
	if c.encoded != nil {
		c.setCodec(c.encoded.DecodedCodec(c.Codec)) // 9
	}
	detector := corruption.New(corruption.Config{
		Resource: c.GroupResource, Prefix: store.Prefix(), ResourcePrefix: c.resourcePrefix,
		Codec: c.Codec, New: c.newFunc, Registry: c.Unreadable,
	})
	b.onDestroy(detector.Close)
	transformer := b.buildTransformer(c)            // 13, 12
	transformer = limiter.Transformer(transformer)  // 11
	transformer = detector.Transformer(transformer) // 10
	c.setCodec(detector.Codec())                    // 9
	below := lower{client, compactor, transformer, detector}
	if b.Interface, err = b.buildEtcd(c, below); err != nil { // 9, 8
		return nil, err
	}
	switch {
	case c.cached && c.encoded != nil:
		err = b.addEncodedCache(c, below)
	case c.packed:
		err = b.addPackedCache(c, below)
	case c.cached:
		b.Interface, err = b.buildCache(c, b.Interface, detector) // 5
	}
	if err != nil {
		return nil, err
	}
	b.Interface = limiter.Storage(b.Interface)   // 3
	b.Interface = writeinfo.Storage(b.Interface) // 2
	return b, nil
}

// buildClient returns a client of the resource's own. It has no connection: its requests go
// through the client of the Store.
func (b *backend) buildClient(ctx context.Context, c storageConfig) (*kubernetes.Client, etcd3.Compactor, error) {
	shared, prefix, resource := b.store.Client(), b.store.Prefix(), c.GroupResource // 19
	state, err := c.openState(ctx, b.store, b.location)
	if err != nil {
		return nil, nil, fmt.Errorf("read the revision offset of %s in Store %s: %w", resource, b.store.Name(), err)
	}
	lifetime, cancel := context.WithCancel(context.Background())
	b.onDestroy(cancel)
	base := clientv3.NewCtxClient(lifetime)
	base.Lease, base.Maintenance = shared.Lease, shared.Maintenance
	b.latest.offset = state.Offset
	base.Watcher = newStream(shared.Watcher, shared.KV, resource.String(), &b.latest) // 18
	base.KV = shared.KV
	if !c.eager { // nothing moves or restores compiled-in resources
		gate := freeze.NewGate(freeze.Target{KV: shared.KV, Prefix: prefix, Resource: resource}, state)
		b.changed = gate.Changed()
		base.KV, base.Watcher = gate.KV(), gate.Watcher(base.Watcher) // 17
	}
	var release func()
	base.KV, release = limits.KV(limits.Config{ // 16
		KV: base.KV, Prefix: prefix, Resource: resource, Usage: b.store.Usage(), Limits: c.limits,
	})
	b.onDestroy(release)
	client := revision.Client(&kubernetes.Client{Client: base}, state.Offset) // 15
	client.KV = sinceKV{etcd3.NewETCDLatencyTracker(client.KV)}               // 14
	client.Kubernetes = client
	return client, revision.Compactor(b.store.Compactor(), state.Offset), nil
}

// buildTransformer returns the transformer that compresses values, then encrypts them.
func (b *backend) buildTransformer(c storageConfig) value.Transformer {
	if c.Compression != nil {
		transformer, release := c.Compression.Transformer(compression.Resource{
			GroupResource: c.GroupResource,
			Store:         b.store.Name(), Prefix: b.store.Prefix(), KV: b.store.Client().KV,
			Encryption: c.Transformer, Enabled: c.compress,
		})
		b.onDestroy(release)
		return transformer
	}
	if c.Transformer != nil {
		return c.Transformer
	}
	return identity.NewEncryptCheckTransformer()
}

// lower has the layers below etcd3.
type lower struct {
	client      *kubernetes.Client
	compactor   etcd3.Compactor
	transformer value.Transformer
	detector    *corruption.Detector
}

// buildEtcd builds the layers 9 and 8.
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

// addEncodedCache adds a watch cache of encoded objects, which reads etcd through storage of
// its own.
func (b *backend) addEncodedCache(c storageConfig, below lower) error {
	c.newFunc, c.newListFunc, c.attrs = c.encoded.NewObject, c.encoded.NewList, watchcache.CacheAttrs
	c.setCodec(c.encoded.Codec(c.Codec))
	etcd, err := b.buildEtcd(c, below) // 9, 8
	if err != nil {
		return err
	}
	switched := &cacheSwitch{Interface: etcd, prefix: c.resourcePrefix, build: func(compressed bool) (*encodedCache, error) {
		return b.buildEncodedCache(c, below, compressed)
	}}
	b.onDestroy(switched.close)
	if err := switched.Apply(context.Background(), c.Caches.Form(c.GroupResource)); err != nil {
		return err
	}
	b.onDestroy(c.Caches.Add(c.GroupResource, switched))
	cached := watchcache.SelectNames(switched, etcd)                                // 4
	b.encoded = watchcache.ConsistentGet(cached, below.client.KV, b.store.Prefix()) // 4
	b.Interface = watchcache.Storage(b.Interface, b.encoded)                        // 4
	return nil
}

// buildEncodedCache builds the layers 9 to 5, which can be destroyed before the others. Each cache
// has an etcd3 of its own, because that estimates the sizes of objects for one cache only.
func (b *backend) buildEncodedCache(c storageConfig, below lower, compressed bool) (_ *encodedCache, err error) {
	layers := &backend{store: b.store, changed: b.changed}
	defer func() {
		if err != nil {
			layers.destroy()
		}
	}()
	etcd, err := layers.buildEtcd(c, below) // 9, 8
	if err != nil {
		return nil, err
	}
	memory := watchcache.NewMemory(c.encoded, c.keyFunc, func() *compression.Dictionary {
		if c.Compression == nil {
			return compression.Generic()
		}
		return c.Compression.Dictionary(context.Background(), b.store.Name(), c.GroupResource, b.store.Client().KV)
	}, c.Caches.Notify)
	layers.onDestroy(memory.Close)
	memory.Compress(compressed)
	c.memory, c.keyFunc, c.indexers = memory, memory.Key, memory.Indexers()
	cached, err := layers.buildCache(c, etcd, below.detector) // 5
	if err != nil {
		return nil, err
	}
	return &encodedCache{cached, memory, layers.destroy}, nil
}

// addPackedCache adds a watch cache of packed objects, which reads etcd through storage of its own.
// Without a cache that is read.
func (b *backend) addPackedCache(c storageConfig, below lower) error {
	typed, err := watchcache.NewPacking(c.Codec, c.newFunc, c.attrs)
	if err != nil {
		return err
	}
	c.newFunc, c.newListFunc, c.attrs = watchcache.NewPacked, watchcache.NewPackedList, watchcache.PackedAttrs
	c.triggers, c.indexers = nil, nil
	c.setCodec(typed.CacheCodec())
	etcd, err := b.buildEtcd(c, below) // 9, 8
	if err != nil {
		return err
	}
	if b.encoded = etcd; !c.cached {
		return nil
	}
	if b.encoded, err = b.buildCache(c, etcd, below.detector); err != nil { // 5
		return err
	}
	b.Interface = typed.Storage(b.Interface, b.encoded) // 4
	return nil
}

// buildCache builds the layer 5 over storage. The cache of a pinned resource is created at once,
// because readiness waits for it.
func (b *backend) buildCache(c storageConfig, etcd storage.Interface, detector *corruption.Detector) (storage.Interface, error) {
	lazy := newLazyCache(etcd, lazyCacheConfig{
		usage: usageOf(b.store, c.GroupResource), closed: b.changed,
	})
	lazy.config.create = func(since []uint64) (*filledCache, error) {
		if c.eager {
			since = nil // it would take longer until annex is ready
		}
		return c.createCache(etcd, detector, since, lazy)
	}
	b.onDestroy(lazy.destroy)
	if c.eager {
		if _, err := lazy.get(context.Background(), 0); err != nil {
			return nil, err
		}
	}
	return lazy, nil
}
