// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"fmt"
	"slices"
	"sync"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/compression"
	"github.com/annex-dev/annex/pkg/storage/corruption"
	"github.com/annex-dev/annex/pkg/storage/limits"
	"github.com/annex-dev/annex/pkg/storage/objectsize"
	"github.com/annex-dev/annex/pkg/storage/usage"
)

// Store is an etcd that objects are kept in. A *stores.Store is one.
type Store interface {
	// Name is that of the Store object.
	Name() string
	// Prefix is what all keys begin with.
	Prefix() string
	// Client is the one client of the Store. It is shared and never closed here.
	Client() *kubernetes.Client
	// Compactor knows what was compacted away; nil if nothing is.
	Compactor() etcd3.Compactor
	// Available returns why requests to the Store would fail, or nil.
	Available() error
	// Usage counts what is in the Store.
	Usage() *usage.Tracker
	// Done is closed when there is another Store of this name, or none.
	Done() <-chan struct{}
}

// Config holds what a Router depends on.
type Config struct {
	// Store finds a Store by its name.
	Store func(name string) (Store, error)
	// HostedResources says which Store holds what.
	HostedResources hostinginformers.HostedResourceInformer
	// LiveHostedResource asks the server instead of a cache.
	LiveHostedResource LiveFunc
	// Cached reports whether reads of a resource are answered from memory.
	Cached func(resource schema.GroupResource) bool
	// ObjectSize bounds what is written.
	ObjectSize ObjectSize
	// Compression says how what is written is compressed.
	Compression Compression
	// Unreadable is told which objects cannot be read.
	Unreadable *corruption.Registry
}

// Compression says which values are compressed, and who does it.
type Compression struct {
	// Manager has the dictionaries; nil leaves everything as it is.
	Manager *compression.Manager
	// Default is what holds for a resource whose HostedResource does not say.
	Default hostingv1alpha1.Compression
}

// ObjectSize says how large an object may be, and what writes of large ones share.
type ObjectSize struct {
	MaxBytes int64
	Budget   *objectsize.Budget
}

// Router makes the storage of resources.
type Router struct {
	store  func(name string) (Store, error)
	cached func(resource schema.GroupResource) bool
	size   ObjectSize
	routes *routes

	compression Compression
	unreadable  *corruption.Registry

	mu    sync.Mutex
	typed []schema.GroupResource
	// compiledIn are the prefixes of all resources that need no definition.
	compiledIn sets.Set[string]
}

// New returns a Router. It follows the informer, which somebody else starts.
func New(config Config) (*Router, error) {
	routes, err := newRoutes(config.HostedResources, config.LiveHostedResource)
	if err != nil {
		return nil, fmt.Errorf("route resources to Stores: %w", err)
	}
	return &Router{
		store: config.Store, cached: config.Cached, size: config.ObjectSize, routes: routes,
		compression: config.Compression, unreadable: config.Unreadable,
		compiledIn: sets.New[string](),
	}, nil
}

// HasSyncedChecker is done once it is known which Store holds what.
func (r *Router) HasSyncedChecker() cache.DoneChecker { return r.routes.synced }

// Pinned is for what annex itself cannot do without: its resources are in the Store
// default, whatever there is in HostedResources.
func (r *Router) Pinned(upstream generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return getter{router: r, upstream: upstream, route: func(schema.GroupResource) route { return pinned{} }}
}

// Typed is for further resources that are compiled in. They are stored under their
// group, as custom resources are.
func (r *Router) Typed(upstream generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	route := func(resource schema.GroupResource) route {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !slices.Contains(r.typed, resource) {
			r.typed = append(r.typed, resource)
		}
		return r.routes.of(resource, hostingv1alpha1.DefinitionCompiledIn)
	}
	prefix := func(resource schema.GroupResource) string { return resource.Group + "/" + resource.Resource }
	return getter{router: r, upstream: upstream, route: route, prefix: prefix}
}

// TypedResources are those that Typed was asked for: each needs a HostedResource.
func (r *Router) TypedResources() []schema.GroupResource {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.typed)
}

// DefinitionFunc returns the UID of the CustomResourceDefinition that is served, and
// whether it is being deleted.
type DefinitionFunc func(name string) (uid types.UID, terminating bool, err error)

// Custom is for the objects of CustomResourceDefinitions.
func (r *Router) Custom(upstream generic.RESTOptionsGetter, definition DefinitionFunc) generic.RESTOptionsGetter {
	return getter{router: r, upstream: upstream, custom: true, route: func(resource schema.GroupResource) route {
		// Asked for once and for all: this storage serves this definition only.
		uid, _, err := definition(resource.String())
		if err != nil {
			return undefined{resource: resource, err: err}
		}
		route := r.routes.of(resource, uid)
		route.terminating = func() bool {
			current, terminating, err := definition(resource.String())
			return err == nil && current == uid && terminating
		}
		return route
	}}
}

// getter replaces the decorators of another getter.
type getter struct {
	router   *Router
	upstream generic.RESTOptionsGetter
	route    func(schema.GroupResource) route
	prefix   func(schema.GroupResource) string // nil leaves it to upstream
	custom   bool
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (g getter) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := g.upstream.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	if g.prefix != nil {
		options.ResourcePrefix = g.prefix(resource)
	}
	to := g.route(resource)
	if g.router.isShadowed(options.ResourcePrefix, g.custom) {
		to = shadowed{resource}
	}
	options.Decorator = g.router.decorator(to, g.router.cached(resource))
	return options, nil
}

// isShadowed reports whether a custom resource would have the keys of one that is
// compiled in. It remembers the prefixes of those.
func (r *Router) isShadowed(prefix string, custom bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !custom {
		r.compiledIn.Insert(prefix)
	}
	return custom && r.compiledIn.Has(prefix)
}

// decorator makes storage that takes the route. It never asks an etcd: upstream
// calls it with a lock that all custom resources share.
func (r *Router) decorator(to route, cached bool) generic.StorageDecorator {
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
		s := newLazyStorage(to, r.store, storageConfig{
			config:         config,
			resourcePrefix: resourcePrefix,
			keyFunc:        keyFunc,
			newFunc:        newFunc,
			newListFunc:    newListFunc,
			attrs:          attrs,
			triggers:       triggers,
			indexers:       indexers,
			cached:         cached,
			size:           r.size,
			compression:    r.compression.Manager,
			compressed:     r.compressed(config.GroupResource),
			unreadable:     r.unreadable,
			limits:         to.limits,
		})
		if _, always := to.(pinned); always {
			// Readiness waits for its cache.
			if err := s.prepare(); err != nil {
				return nil, nil, err
			}
		} else {
			s.prepareInBackground()
		}
		return s, s.destroy, nil
	}
}

// compressed returns what tells, at any time, whether values of a resource are to be
// compressed that are written now. A HostedResource may say it for any resource, also
// for one that it cannot place.
func (r *Router) compressed(resource schema.GroupResource) func() bool {
	return func() bool {
		wanted := r.compression.Default
		if hosted, err := r.routes.hosted.Get(resource.String()); err == nil && hosted.Spec.Compression != "" {
			wanted = hosted.Spec.Compression
		}
		return wanted == hostingv1alpha1.CompressionZstd
	}
}

// pinned is the route to the Store default.
type pinned struct{}

func (pinned) find() (location, error)  { return location{store: hostingv1alpha1.DefaultStoreName}, nil }
func (pinned) changed() <-chan struct{} { return nil }
func (pinned) limits() limits.Limits    { return limits.Unlimited() }

// undefined is the route of a resource whose definition went while it was made.
type undefined struct {
	resource schema.GroupResource
	err      error
}

func (u undefined) find() (location, error) {
	return location{}, notPlaced(u.resource, fmt.Sprintf("is not routed: %v", u.err), true)
}
func (undefined) changed() <-chan struct{} { return nil }
func (undefined) limits() limits.Limits    { return limits.Unlimited() }

// shadowed is the route of a definition whose objects would have the keys of a resource
// that is compiled in. Admission refuses such a definition; with one that is there
// already nothing is read, and nothing deleted when it goes.
type shadowed struct{ resource schema.GroupResource }

func (s shadowed) find() (location, error) {
	return location{}, notPlaced(s.resource, "is not routed: the resource is compiled into annex, delete its CustomResourceDefinition", true)
}
func (shadowed) changed() <-chan struct{} { return nil }
func (shadowed) limits() limits.Limits    { return limits.Unlimited() }
