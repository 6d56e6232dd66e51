// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/storage/compression"
	"github.com/annex-dev/annex/pkg/storage/corruption"
	"github.com/annex-dev/annex/pkg/storage/limits"
	"github.com/annex-dev/annex/pkg/storage/objectsize"
)

// storageConfig is what a resource's storage is made from, but for the Store.
type storageConfig struct {
	config         *storagebackend.ConfigForResource
	resourcePrefix string
	keyFunc        func(obj runtime.Object) (string, error)
	newFunc        func() runtime.Object
	newListFunc    func() runtime.Object
	attrs          storage.AttrFunc
	triggers       storage.IndexerFuncs
	indexers       *cache.Indexers
	cached         bool
	size           ObjectSize
	compression    *compression.Manager
	compressed     func() bool
	unreadable     *corruption.Registry
	limits         func() limits.Limits
}

// backend is the storage of a resource in its Store.
type backend struct {
	storage.Interface
	store    Store
	location location
	cached   bool
	destroy  func()
}

// build makes the backend in a Store: etcd3 on the Store's client, as the layers let
// it see that, and the watch cache before it.
func (r storageConfig) build(ctx context.Context, store Store) (*backend, error) {
	layers, err := newLayers(ctx, r, store)
	if err != nil {
		return nil, err
	}
	versioner := storage.APIObjectVersioner{}
	limiter := objectsize.NewLimiter(objectsize.Config{
		Resource: r.config.GroupResource, Store: store.Name(), Prefix: store.Prefix(),
		MaxBytes: r.size.MaxBytes, Budget: r.size.Budget,
	})
	detector := corruption.New(corruption.Config{
		Resource: r.config.GroupResource, Prefix: store.Prefix(), ResourcePrefix: r.resourcePrefix,
		Codec: r.config.Codec, New: r.newFunc, Registry: r.unreadable,
	})
	codec := detector.Codec()
	transformer := detector.Transformer(limiter.Transformer(layers.transformer))
	decoder := detector.Decoder(etcd3.NewDefaultDecoder(codec, versioner))
	raw, err := etcd3.New(layers.client, layers.compactor, codec, r.newFunc, r.newListFunc, store.Prefix(),
		r.resourcePrefix, r.config.GroupResource, transformer, r.config.LeaseManagerConfig, decoder, versioner)
	closeLayers := func() {
		detector.Close()
		layers.close()
	}
	if err != nil {
		closeLayers()
		return nil, fmt.Errorf("create the storage of %s in Store %s: %w", r.config.GroupResource, store.Name(), err)
	}
	b := &backend{Interface: raw, store: store, cached: r.cached}
	if utilfeature.DefaultFeatureGate.Enabled(features.AllowUnsafeMalformedObjectDeletion) {
		b.Interface = etcd3.NewStoreWithUnsafeCorruptObjectDeletion(raw, r.config.GroupResource)
	}
	b.Interface = detector.Storage(b.Interface)
	closeRaw := func() {
		raw.Close()
		closeLayers()
	}
	stopCache := func() {}
	if r.cached {
		if stopCache, err = b.addCache(r, versioner, detector); err != nil {
			closeRaw()
			return nil, err
		}
	}
	// Outside of the cache, which asks for the object before it is changed.
	b.Interface = limiter.Storage(b.Interface)
	// Endpoints of a resource share a backend, and each destroys it.
	b.destroy = sync.OnceFunc(func() {
		stopCache()
		closeRaw()
	})
	return b, nil
}

// addCache puts the watch cache before the storage.
func (b *backend) addCache(r storageConfig, versioner storage.Versioner, detector *corruption.Detector) (stop func(), err error) {
	watchCache, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage:             b.Interface,
		Versioner:           versioner,
		GroupResource:       r.config.GroupResource,
		EventsHistoryWindow: r.config.EventsHistoryWindow,
		ResourcePrefix:      r.resourcePrefix,
		KeyFunc:             r.keyFunc,
		NewFunc:             r.newFunc,
		NewListFunc:         r.newListFunc,
		GetAttrsFunc:        r.attrs,
		IndexerFuncs:        r.triggers,
		Indexers:            r.indexers,
		Codec:               r.config.Codec,
	})
	if err != nil {
		return nil, fmt.Errorf("create the watch cache of %s: %w", r.config.GroupResource, err)
	}
	delegator := cacher.NewCacheDelegator(watchCache, b.Interface)
	b.Interface = detector.Cached(newWarmingCache(delegator, b.Interface, func() bool { return r.isSmall(b.store) }))
	var filling sync.WaitGroup
	filling.Go(func() {
		if watchCache.Wait(context.Background()) == nil { // or stopped
			detector.NoteAllRead()
		}
	})
	return func() {
		delegator.Stop()
		watchCache.Stop()
		filling.Wait()
	}, nil
}

// isStale reports whether the Store is not the one any longer that the backend was
// made for. Its watch cache would show what is no longer there.
func (b *backend) isStale() bool {
	select {
	case <-b.store.Done():
		return true
	default:
		return false
	}
}

// canServeReads reports whether the watch cache can answer reads, the Store being down.
func (b *backend) canServeReads() bool { return b.cached && b.ReadinessCheck() == nil }
