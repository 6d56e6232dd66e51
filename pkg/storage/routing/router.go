// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"go.etcd.io/etcd/client/v3/kubernetes"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
	"github.com/annex-dev/annex/pkg/storage/layer/limits"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// Store is an etcd that holds objects. A *stores.Store is one.
type Store interface {
	// Name is the name of the Store object.
	Name() string
	// Prefix begins all keys.
	Prefix() string
	// Client is the client that all resources of the Store share. It is not closed here.
	Client() *kubernetes.Client
	// Compactor returns the revision of the last compaction; nil if nothing is compacted.
	Compactor() etcd3.Compactor
	// Available returns why requests to the Store would fail, or nil.
	Available() error
	// Usage counts the objects in the Store.
	Usage() *usage.Tracker
	// Done is closed when the Store was deleted or replaced by another of its name.
	Done() <-chan struct{}
}

// Config holds the dependencies of a Router.
type Config struct {
	// Store finds a Store by its name.
	Store func(name string) (Store, error)
	// HostedResources names the Store of each resource.
	HostedResources hostinginformers.HostedResourceInformer
	// LiveHostedResource reads a HostedResource from the server.
	LiveHostedResource LiveFunc
	// Cached reports whether a resource has a watch cache.
	Cached func(resource schema.GroupResource) bool
	// Packed reports whether the watch cache of a compiled-in resource has Packed objects.
	Packed func(resource schema.GroupResource) bool
	Layers
}

// Router builds the storage of resources.
type Router struct {
	config Config
	routes *routes

	mu sync.Mutex
	// compiledIn has the key prefixes of all resources without a CustomResourceDefinition.
	compiledIn sets.Set[string]
	// custom has the storage of custom resources that is not yet destroyed.
	custom map[*lazyStorage]func()
}

// New returns a Router. The caller starts the informer.
func New(config Config) (*Router, error) {
	registerMetrics()
	routes, err := newRoutes(config.HostedResources, config.LiveHostedResource)
	if err != nil {
		return nil, fmt.Errorf("route resources to Stores: %w", err)
	}
	config.fills = make(fills, fillsAtOnce)
	r := &Router{config: config, routes: routes, compiledIn: sets.New[string](), custom: map[*lazyStorage]func(){}}
	config.Caches.SetSpecified(r.cacheOf)
	return r, nil
}

// HasSyncedChecker is done once all HostedResources are known.
func (r *Router) HasSyncedChecker() cache.DoneChecker { return r.routes.synced }

// Pinned keeps compiled-in resources in the Store default, without a HostedResource.
func (r *Router) Pinned(upstream generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return getter{router: r, upstream: upstream, route: func(schema.GroupResource) route { return pinned{} }}
}

// DefinitionFunc returns a CustomResourceDefinition that is served.
type DefinitionFunc func(name string) (*apiextensionsv1.CustomResourceDefinition, error)

// AddEndpointFunc adds the storage of a version to those that are served. remove is called
// before the storage is closed.
type AddEndpointFunc func(watchcache.Endpoint) (remove func())

// Custom routes the objects of CustomResourceDefinitions. With add their watch caches have
// encoded objects; it may be nil.
func (r *Router) Custom(upstream generic.RESTOptionsGetter, definition DefinitionFunc, add AddEndpointFunc) generic.RESTOptionsGetter {
	return getter{router: r, upstream: upstream, custom: true, add: add, route: func(resource schema.GroupResource) route {
		// The storage serves only the definition that it was made for.
		served, err := definition(resource.String())
		if err != nil {
			// The definition was deleted while its storage was built.
			return refused{err: notPlaced(resource, fmt.Sprintf("is not routed: %v", err), true)}
		}
		return &hostedRoute{routes: r.routes, resource: resource, definition: served, terminating: func() bool {
			current, err := definition(resource.String())
			return err == nil && current.UID == served.UID && !current.DeletionTimestamp.IsZero()
		}}
	}}
}

// getter replaces the decorators of another getter.
type getter struct {
	router   *Router
	upstream generic.RESTOptionsGetter
	route    func(schema.GroupResource) route
	custom   bool
	add      AddEndpointFunc
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (g getter) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := g.upstream.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	to := g.route(resource)
	if g.router.isShadowed(options.ResourcePrefix, g.custom) {
		// Admission refuses such definitions. For an existing one nothing is read, and nothing deleted when it is deleted.
		to = refused{
			err:   notPlaced(resource, "is not routed: the resource is compiled into annex, delete its CustomResourceDefinition", true),
			empty: true,
		}
	}
	options.Decorator = g.router.decorator(to, g.add)
	if g.custom {
		options.CountMetricPollPeriod = 0 // lazyStorage counts
	}
	return options, nil
}

// isShadowed reports whether a custom resource has the keys of a compiled-in one. It records
// the prefixes of the latter.
func (r *Router) isShadowed(prefix string, custom bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !custom {
		r.compiledIn.Insert(prefix)
	}
	return custom && r.compiledIn.Has(prefix)
}

// decorator builds storage that follows a route. Only pinned storage reads etcd at once:
// upstream calls the decorator with a lock that all custom resources share.
func (r *Router) decorator(to route, add AddEndpointFunc) generic.StorageDecorator {
	return func(
		config *storagebackend.ConfigForResource,
		resourcePrefix string,
		keyFunc func(obj runtime.Object) (string, error),
		newFunc func() runtime.Object,
		newListFunc func() runtime.Object,
		attrs storage.AttrFunc,
		triggers storage.IndexerFuncs,
		indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		storageConfig := storageConfig{
			Layers:            r.config.Layers,
			ConfigForResource: config,
			resourcePrefix:    resourcePrefix,
			keyFunc:           keyFunc,
			newFunc:           newFunc,
			newListFunc:       newListFunc,
			attrs:             attrs,
			triggers:          triggers,
			indexers:          indexers,
			cached:            r.config.Cached(config.GroupResource),
			compress:          func() bool { return r.IsCompressed(config.GroupResource) },
			limits:            to.limits,
			placed: func(ctx context.Context, at location) (bool, error) {
				return r.routes.isPlaced(ctx, config.GroupResource.String(), at)
			},
		}
		_, storageConfig.eager = to.(pinned)
		hosted, ok := to.(*hostedRoute)
		if ok {
			storageConfig.definition = hosted.definition
		}
		if ok && add != nil && storageConfig.cached {
			storageConfig.custom = watchcache.NewResource(hosted.definition, newFunc().GetObjectKind().GroupVersionKind(),
				newListFunc().GetObjectKind().GroupVersionKind(), attrs)
		}
		storageConfig.packed = storageConfig.custom == nil && r.config.Packed(config.GroupResource)
		s := newLazyStorage(to, r.config.Store, storageConfig)
		destroy := s.destroy
		switch {
		case storageConfig.eager: // readiness waits for its cache
			return s, destroy, s.prepare()
		case storageConfig.custom != nil:
			remove := add(watchcache.Endpoint{
				Definition: hosted.definition, Resource: storageConfig.custom, Storage: &lazyStorage{s.lazyBackend, true}, Prefix: resourcePrefix,
			})
			destroy = func() {
				remove()
				s.destroy()
			}
		}
		return s, r.tracked(s, destroy), nil
	}
}

// tracked returns a function that destroys the storage of a custom resource, unless DestroyCustom
// does.
func (r *Router) tracked(s *lazyStorage, destroy func()) func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.custom[s] = destroy
	return func() {
		r.mu.Lock()
		_, exists := r.custom[s]
		delete(r.custom, s)
		r.mu.Unlock()
		if exists {
			destroy()
		}
	}
}

// IsEmpty reports whether a custom resource certainly has no objects.
func (r *Router) IsEmpty(resource schema.GroupResource) bool {
	hosted, err := r.routes.hosted.Get(resource.String())
	if err != nil || hosted.Spec.StoreName == "" {
		return false
	}
	store, err := r.config.Store(hosted.Spec.StoreName)
	if err != nil {
		return false
	}
	objects, _, known := usageOf(store, resource)()
	return known && objects == 0
}

// DestroyCustom destroys the storage of all custom resources, when the server has stopped.
func (r *Router) DestroyCustom() {
	r.mu.Lock()
	all := maps.Clone(r.custom)
	clear(r.custom)
	r.mu.Unlock()
	for _, destroy := range all {
		destroy()
	}
}

// IsCompressed reports whether new values of a resource are to be compressed. A HostedResource
// may set that for any resource, also for one that it does not place.
func (r *Router) IsCompressed(resource schema.GroupResource) bool {
	wanted := r.config.DefaultCompression
	if hosted, err := r.routes.hosted.Get(resource.String()); err == nil && hosted.Spec.Compression != "" {
		wanted = hosted.Spec.Compression
	}
	return wanted == hostingv1alpha1.CompressionZstd
}

// cacheOf returns spec.cache of a resource.
func (r *Router) cacheOf(resource schema.GroupResource) hostingv1alpha1.Cache {
	hosted, err := r.routes.hosted.Get(resource.String())
	if err != nil {
		return ""
	}
	return hosted.Spec.Cache
}

// pinned is the route to the Store default.
type pinned struct{}

func (pinned) find() (location, error) {
	return location{store: hostingv1alpha1.DefaultStoreName}, nil
}
func (pinned) changed() <-chan struct{} { return nil }
func (pinned) limits() limits.Limits    { return limits.Unlimited() }

// refused is the route of a resource without a Store.
type refused struct {
	err error
	// empty is set if the resource has no objects.
	empty bool
}

func (r refused) find() (location, error) { return location{}, r.err }
func (refused) changed() <-chan struct{}  { return nil }
func (refused) limits() limits.Limits     { return limits.Unlimited() }
