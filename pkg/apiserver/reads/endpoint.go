// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"net/http"
	"time"

	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"

	"github.com/annex-dev/annex/pkg/apiserver/front"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// endpoint has the handlers of a version by verb.
type endpoint struct {
	scope *handlers.RequestScope
	// objects return whole objects, metadata PartialObjectMetadata, tables tables, and wholeTables
	// tables with whole objects.
	objects, metadata, tables, wholeTables map[string]http.HandlerFunc
}

// newEndpoint returns an endpoint. It serves nothing if its definition is not valid.
func newEndpoint(from watchcache.Endpoint, minRequestTimeout time.Duration) *endpoint {
	scope, err := front.NewScope(from, front.NewSerializer(apiextensionsapiserver.Scheme))
	if err != nil {
		utilruntime.HandleError(err)
		return &endpoint{}
	}
	columns := columnsOf(from.Definition, from.Resource.Kind.Version)
	scope.TableConvertor = newTables(columns)
	store := newStore(from, scope.Resource.GroupResource())
	return &endpoint{
		scope:       scope,
		objects:     newHandlers(store, scope, minRequestTimeout),
		metadata:    newHandlers(projected{store, withMetadata}, scope, minRequestTimeout),
		tables:      newHandlers(projected{store, rows(shown(columns))}, scope, minRequestTimeout),
		wholeTables: newHandlers(projected{store, decoded}, scope, minRequestTimeout),
	}
}

// reader reads a resource.
type reader interface {
	rest.Getter
	rest.Lister
	rest.Watcher
}

func newHandlers(from reader, scope *handlers.RequestScope, minRequestTimeout time.Duration) map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"get":   handlers.GetResource(from, scope),
		"list":  handlers.ListResource(from, from, scope, false, minRequestTimeout),
		"watch": handlers.ListResource(from, from, scope, true, minRequestTimeout),
	}
}

// metadataKinds has the kind that clients request with a verb. For another kind upstream
// returns an error that names the type of the object.
var metadataKinds = map[string]string{"get": "PartialObjectMetadata", "list": "PartialObjectMetadataList", "watch": "PartialObjectMetadata"}

// handlerFor returns the handler of a request, or nil if upstream's must serve it.
func (e *endpoint) handlerFor(req *http.Request, verb string) http.HandlerFunc {
	if e.scope == nil {
		return nil
	}
	accepted, ok := negotiation.NegotiateMediaTypeOptions(req.Header.Get("Accept"), e.scope.Serializer.SupportedMediaTypes(), e.scope)
	switch {
	case !ok:
		return nil
	case accepted.Convert == nil:
		return e.objects[verb]
	case accepted.Convert.Kind == metadataKinds[verb]:
		return e.metadata[verb]
	case accepted.Convert.Kind == "Table" && req.URL.Query().Get("includeObject") == string(metav1.IncludeObject):
		return e.wholeTables[verb]
	case accepted.Convert.Kind == "Table":
		return e.tables[verb]
	}
	return nil
}

// newStore returns a registry's store that only reads.
func newStore(from watchcache.Endpoint, resource schema.GroupResource) *genericregistry.Store {
	return &genericregistry.Store{
		NewFunc:                  from.Resource.NewObject,
		NewListFunc:              from.Resource.NewList,
		DefaultQualifiedResource: resource,
		PredicateFunc: func(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
			return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: watchcache.Attrs}
		},
		KeyRootFunc: func(ctx context.Context) string { return front.KeyRoot(ctx, from) },
		KeyFunc:     func(ctx context.Context, name string) (string, error) { return front.Key(ctx, from, name) },
		Storage:     genericregistry.DryRunnableStorage{Storage: from.Storage},
	}
}

// projected returns the projections of objects.
type projected struct {
	*genericregistry.Store
	project projection
}

// Get implements rest.Getter.
func (s projected) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	object, err := s.Store.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return s.project(object)
}

// List implements rest.Lister.
func (s projected) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	list, err := s.Store.List(ctx, options)
	if err != nil {
		return nil, err
	}
	return s.project(list)
}

// Watch implements rest.Watcher.
func (s projected) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	events, err := s.Store.Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	return s.project.watch(events), nil
}
