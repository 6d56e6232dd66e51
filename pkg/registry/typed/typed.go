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
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/annex-dev/annex/pkg/apis/scheme"
	"github.com/annex-dev/annex/pkg/table"
)

// Endpoints is the REST storage of a group, by RESOURCE or RESOURCE/SUBRESOURCE.
type Endpoints map[string]rest.Storage

// NewEndpoints creates the storage of resources: the main endpoint of each, and /status if it has
// one.
func NewEndpoints(getter generic.RESTOptionsGetter, resources ...Resource) (Endpoints, error) {
	endpoints := Endpoints{}
	for _, resource := range resources {
		store, err := newREST(getter, resource)
		if err != nil {
			return nil, err
		}
		name := store.DefaultQualifiedResource.Resource
		endpoints[name] = store
		if strategy, ok := resource.Strategy.(interface {
			ForStatus() rest.RESTUpdateStrategy
		}); ok {
			status := store.Subresource(strategy.ForStatus())
			version := resource.Kind.GroupVersion()
			store.ResetFieldsStrategy = resetFields(ResetFields(version, "status"))
			status.store.ResetFieldsStrategy = resetFields(ResetFields(version, "metadata", "spec"))
			endpoints[name+"/status"] = status
		}
	}
	return endpoints, nil
}

// NewGroup creates the storage of a group that has only these resources.
func NewGroup(version schema.GroupVersion, getter generic.RESTOptionsGetter, resources ...Resource) (genericapiserver.APIGroupInfo, error) {
	endpoints, err := NewEndpoints(getter, resources...)
	return endpoints.Group(version), err
}

// REST returns the main endpoint of a resource.
func (e Endpoints) REST(resource string) *REST { return e[resource].(*REST) }

// Group describes the group with its only version.
func (e Endpoints) Group(version schema.GroupVersion) genericapiserver.APIGroupInfo {
	info := genericapiserver.NewDefaultAPIGroupInfo(version.Group, scheme.Scheme, scheme.ParameterCodec, scheme.Codecs)
	info.VersionedResourcesStorageMap[version.Version] = e
	return info
}

// Strategy is the behaviour of a resource on create, update and delete. If it implements
// rest.ResetFieldsStrategy, server-side apply uses that.
type Strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

// Resource describes one resource.
type Resource struct {
	// Kind is the kind and the version of the internal type. The lower-case plural of the kind is
	// the name of the resource.
	Kind schema.GroupVersionKind
	// ShortNames and Categories are published in discovery, for kubectl.
	ShortNames []string
	Categories []string

	Strategy Strategy
	Table    rest.TableConvertor

	// Attrs returns the labels and selectable fields of an object; by default name and
	// namespace.
	Attrs storage.AttrFunc
	// TTL is the time after the last write until an object expires; with zero it never does.
	TTL time.Duration
	// ReturnDeletedObject makes a delete return the object instead of a Status.
	ReturnDeletedObject bool
	// ShouldDeleteDuringUpdate replaces the generic rule that decides whether an update
	// removes the object, for kinds with finalizers of their own.
	ShouldDeleteDuringUpdate func(ctx context.Context, key string, obj, existing runtime.Object) bool
}

// Fields returns the Attrs of a kind with selectable fields in addition to name and namespace.
func Fields[T table.Object](selectable func(T) fields.Set) storage.AttrFunc {
	return func(obj runtime.Object) (labels.Set, fields.Set, error) {
		object, ok := obj.(T)
		if !ok {
			return nil, nil, fmt.Errorf("select objects: unexpected type %T", obj)
		}
		set := selectable(object)
		set[metav1.ObjectNameField], set["metadata.namespace"] = object.GetName(), object.GetNamespace()
		return object.GetLabels(), set, nil
	}
}

// newREST returns the main endpoint of a resource.
func newREST(getter generic.RESTOptionsGetter, resource Resource) (*REST, error) {
	plural, singular := meta.UnsafeGuessKindToResource(resource.Kind)
	store := &genericregistry.Store{
		NewFunc:                   newFunc(resource.Kind),
		NewListFunc:               newFunc(resource.Kind.GroupVersion().WithKind(resource.Kind.Kind + "List")),
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
func newFunc(kind schema.GroupVersionKind) func() runtime.Object {
	return func() runtime.Object {
		object, err := scheme.Scheme.New(kind)
		utilruntime.Must(err)
		return object
	}
}

// REST is the main endpoint of a resource: the generic registry's store with short names
// and categories.
type REST struct {
	*genericregistry.Store
	// MayDelete refuses deletions with its error, before admission runs; nil refuses none.
	MayDelete rest.ValidateObjectFunc

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

// Delete implements rest.GracefulDeleter.
func (s *REST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	return s.Store.Delete(ctx, name, s.ifMayDelete(validate), options)
}

// DeleteCollection implements rest.CollectionDeleter.
func (s *REST) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, listOptions *internalversion.ListOptions) (runtime.Object, error) {
	return s.Store.DeleteCollection(ctx, s.ifMayDelete(validate), options, listOptions)
}

func (s *REST) ifMayDelete(validate rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	if s.MayDelete == nil {
		return validate
	}
	return func(ctx context.Context, obj runtime.Object) error {
		if err := s.MayDelete(ctx, obj); err != nil {
			return err
		}
		return validate(ctx, obj)
	}
}

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
