// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"fmt"
	"maps"
	"strings"
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
	// Packed reports whether a watch cache without encoded objects has packed ones. It may be nil.
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
	if config.Caches != nil {
		config.Caches.SetSpecified(r.cacheOf)
	}
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

// AddEncodedFunc adds storage of encoded objects to those that are served. remove is called
// before the storage is closed.
type AddEncodedFunc func(watchcache.Endpoint) (remove func())

// Custom routes the objects of CustomResourceDefinitions. With add their watch caches have
// encoded objects; it may be nil.
func (r *Router) Custom(upstream generic.RESTOptionsGetter, definition DefinitionFunc, add AddEncodedFunc) generic.RESTOptionsGetter {
	return getter{router: r, upstream: upstream, custom: true, add: add, route: func(resource schema.GroupResource) route {
		// The storage serves only the definition that it was made for.
		served, err := definition(resource.String())
		if err != nil {
			return undefined{resource: resource, err: err}
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
	add      AddEncodedFunc
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (g getter) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := g.upstream.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	to := g.route(resource)
	if g.router.isShadowed(options.ResourcePrefix, g.custom) {
		to = shadowed{resource}
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
func (r *Router) decorator(to route, add AddEncodedFunc) generic.StorageDecorator {
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
		hosted, custom := to.(*hostedRoute)
		if custom {
			storageConfig.definition = hosted.definition
		}
		isEncoded := custom && add != nil && storageConfig.cached
		if isEncoded {
			kind := newFunc().GetObjectKind().GroupVersionKind()
			storageConfig.encoded = &watchcache.Resource{
				Kind: kind, ListKind: newListFunc().GetObjectKind().GroupVersionKind(), Attrs: attrs,
				Selectable: selectableFields(hosted.definition, kind.Version),
				Schema:     sync.OnceValue(func() *watchcache.Schema { return watchcache.NewSchema(hosted.definition, kind.Version) }),
			}
		}
		_, storageConfig.eager = to.(pinned)
		storageConfig.packed = !isEncoded && r.config.Packed != nil && r.config.Packed(config.GroupResource)
		s := newLazyStorage(to, r.config.Store, storageConfig)
		if storageConfig.eager {
			// Readiness waits for its cache.
			if err := s.prepare(); err != nil {
				return nil, nil, err
			}
		}
		if storageConfig.eager {
			return s, s.destroy, nil
		}
		if !isEncoded {
			return s, r.tracked(s, s.destroy), nil
		}
		remove := add(watchcache.Endpoint{
			Definition: hosted.definition, Resource: storageConfig.encoded, Storage: encodedStorage{s}, Prefix: resourcePrefix,
		})
		return s, r.tracked(s, func() {
			remove()
			s.destroy()
		}), nil
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

// selectableFields returns the selectable fields of a version, besides name and namespace, as
// they are in field selectors.
func selectableFields(definition *apiextensionsv1.CustomResourceDefinition, version string) (names []string) {
	for i := range definition.Spec.Versions {
		if v := &definition.Spec.Versions[i]; v.Name == version {
			for _, field := range v.SelectableFields {
				names = append(names, strings.TrimPrefix(field.JSONPath, "."))
			}
		}
	}
	return names
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

// undefined is the route of a resource whose definition was deleted while its storage was built.
type undefined struct {
	resource schema.GroupResource
	err      error
}

func (u undefined) find() (location, error) {
	return location{}, notPlaced(u.resource, fmt.Sprintf("is not routed: %v", u.err), true)
}
func (undefined) changed() <-chan struct{} { return nil }
func (undefined) limits() limits.Limits    { return limits.Unlimited() }

// shadowed is the route of a definition whose objects would have the keys of a compiled-in
// resource. Admission refuses such definitions. For an existing one nothing is read, and
// nothing deleted when it is deleted.
type shadowed struct{ resource schema.GroupResource }

func (s shadowed) find() (location, error) {
	return location{}, notPlaced(s.resource, "is not routed: the resource is compiled into annex, delete its CustomResourceDefinition", true)
}
func (shadowed) changed() <-chan struct{} { return nil }
func (shadowed) limits() limits.Limits    { return limits.Unlimited() }
