// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package typed creates the REST storage of compiled-in resources: each resource only
// describes how it differs from the generic registry.
package typed

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Serialization is the scheme and the codecs of all groups. Storage providers embed it.
type Serialization struct {
	Scheme         *runtime.Scheme
	ParameterCodec runtime.ParameterCodec
	Codecs         serializer.CodecFactory
}

// GroupInfo describes a group with the resources of one version.
func (s Serialization) GroupInfo(version schema.GroupVersion, resources map[string]rest.Storage) genericapiserver.APIGroupInfo {
	info := genericapiserver.NewDefaultAPIGroupInfo(version.Group, s.Scheme, s.ParameterCodec, s.Codecs)
	info.VersionedResourcesStorageMap[version.Version] = resources
	return info
}

// NewGroup creates the storage of a group with one version.
func (s Serialization) NewGroup(version schema.GroupVersion, getter generic.RESTOptionsGetter, resources ...Resource) (genericapiserver.APIGroupInfo, error) {
	endpoints := map[string]rest.Storage{}
	for _, resource := range resources {
		store, err := NewREST(s.Scheme, getter, resource)
		if err != nil {
			return genericapiserver.APIGroupInfo{}, err
		}
		endpoints[store.DefaultQualifiedResource.Resource] = store
		if resource.Status != nil {
			endpoints[store.DefaultQualifiedResource.Resource+"/status"] = store.Subresource(resource.Status)
		}
	}
	return s.GroupInfo(version, endpoints), nil
}

// Strategy is the behaviour of a resource on create, update and delete. If it implements
// rest.ResetFieldsStrategy, server-side apply uses that.
type Strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

// Resource describes one resource.
type Resource struct {
	// Kind is that of the internal type, in its version. Its lower-case plural is the name of
	// the resource.
	Kind schema.GroupVersionKind
	// ShortNames and Categories are published in discovery, for kubectl.
	ShortNames []string
	Categories []string

	Strategy Strategy
	// Status is the strategy of the endpoint /status, nil if there is none.
	Status rest.RESTUpdateStrategy
	Table  rest.TableConvertor

	// Attrs returns the labels and selectable fields of an object; by default name and
	// namespace.
	Attrs storage.AttrFunc
	// TTL is how long objects are kept after their last write; zero means forever.
	TTL time.Duration
	// ReturnDeletedObject makes a delete return the object instead of a Status.
	ReturnDeletedObject bool
	// ShouldDeleteDuringUpdate replaces the generic rule that decides whether an update
	// removes the object, for kinds with finalizers of their own.
	ShouldDeleteDuringUpdate func(ctx context.Context, key string, obj, existing runtime.Object) bool
}

// NewREST returns the main endpoint of a resource.
func NewREST(scheme *runtime.Scheme, getter generic.RESTOptionsGetter, resource Resource) (*REST, error) {
	plural, singular := meta.UnsafeGuessKindToResource(resource.Kind)
	store := &genericregistry.Store{
		NewFunc:                   newFunc(scheme, resource.Kind),
		NewListFunc:               newFunc(scheme, resource.Kind.GroupVersion().WithKind(resource.Kind.Kind+"List")),
		DefaultQualifiedResource:  plural.GroupResource(),
		SingularQualifiedResource: singular.GroupResource(),
		CreateStrategy:            resource.Strategy,
		UpdateStrategy:            resource.Strategy,
		DeleteStrategy:            resource.Strategy,
		TableConvertor:            resource.Table,
		ReturnDeletedObject:       resource.ReturnDeletedObject,
		ShouldDeleteDuringUpdate:  resource.ShouldDeleteDuringUpdate,
	}
	if resets, ok := resource.Strategy.(rest.ResetFieldsStrategy); ok {
		store.ResetFieldsStrategy = resets
	}
	if resource.TTL > 0 {
		// etcd leases have whole seconds, and zero would mean forever.
		seconds := uint64(max(resource.TTL, time.Second) / time.Second)
		store.TTLFunc = func(runtime.Object, uint64, bool) (uint64, error) { return seconds, nil }
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: getter, AttrFunc: resource.Attrs}); err != nil {
		return nil, fmt.Errorf("create the storage of %s: %w", plural.GroupResource(), err)
	}
	return &REST{Store: store, shortNames: resource.ShortNames, categories: resource.Categories}, nil
}

// newFunc returns a function that returns empty objects of a kind.
func newFunc(scheme *runtime.Scheme, kind schema.GroupVersionKind) func() runtime.Object {
	return func() runtime.Object {
		object, err := scheme.New(kind)
		utilruntime.Must(err)
		return object
	}
}

// REST is the main endpoint of a resource: the generic registry's store with short names
// and categories.
type REST struct {
	*genericregistry.Store
	shortNames []string
	categories []string
}

var (
	_ rest.StandardStorage     = &REST{}
	_ rest.ShortNamesProvider  = &REST{}
	_ rest.CategoriesProvider  = &REST{}
	_ rest.ResetFieldsStrategy = &REST{}
)

// ShortNames implements rest.ShortNamesProvider.
func (s *REST) ShortNames() []string { return s.shortNames }

// Categories implements rest.CategoriesProvider.
func (s *REST) Categories() []string { return s.categories }

// Subresource returns an endpoint that updates the same objects with another strategy,
// such as `status`.
func (s *REST) Subresource(strategy rest.RESTUpdateStrategy) *SubresourceREST {
	store := *s.Store
	store.UpdateStrategy = withoutCreate{RESTUpdateStrategy: strategy}
	store.ResetFieldsStrategy = nil
	if resets, ok := strategy.(rest.ResetFieldsStrategy); ok {
		store.ResetFieldsStrategy = resets
	}
	return &SubresourceREST{store: &store}
}

// withoutCreate is an update strategy that never creates, even if the main endpoint does.
type withoutCreate struct {
	uniqueErrors
	rest.RESTUpdateStrategy
}

func (withoutCreate) AllowCreateOnUpdate(context.Context) bool { return false }

// SubresourceREST is an endpoint for a part of an object. It only reads and updates.
type SubresourceREST struct {
	store *genericregistry.Store
}

var (
	_ rest.Patcher             = &SubresourceREST{}
	_ rest.TableConvertor      = &SubresourceREST{}
	_ rest.ResetFieldsStrategy = &SubresourceREST{}
)

// New implements rest.Storage.
func (s *SubresourceREST) New() runtime.Object { return s.store.New() }

// Destroy implements rest.Storage. The main endpoint destroys the storage that both use.
func (s *SubresourceREST) Destroy() {}

// Get implements rest.Getter, which patches need.
func (s *SubresourceREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}

// Update implements rest.Updater, without creates.
func (s *SubresourceREST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo,
	createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc,
	_ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return s.store.Update(ctx, name, objInfo, createValidation, updateValidation, false, options)
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (s *SubresourceREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.store.GetResetFields()
}

// ConvertToTable implements rest.TableConvertor.
func (s *SubresourceREST) ConvertToTable(ctx context.Context, object runtime.Object, tableOptions runtime.Object) (*metav1.Table, error) {
	return s.store.ConvertToTable(ctx, object, tableOptions)
}
