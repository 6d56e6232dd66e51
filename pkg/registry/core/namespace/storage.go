// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/registry/table"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// Storage has the endpoints of namespaces.
type Storage struct {
	Namespace *REST
	Status    *typed.SubresourceREST
	Finalize  *typed.SubresourceREST
}

// NewStorage returns the endpoints of namespaces.
func NewStorage(scheme *runtime.Scheme, getter generic.RESTOptionsGetter) (*Storage, error) {
	main := strategy{typed.ClusterScoped(scheme)}
	store, err := typed.NewREST(scheme, getter, typed.Resource{
		Kind:                     corev1.SchemeGroupVersion.WithKind("Namespace"),
		ShortNames:               []string{"ns"},
		Strategy:                 main,
		Attrs:                    attrs,
		Table:                    tableConvertor,
		ReturnDeletedObject:      true,
		ShouldDeleteDuringUpdate: shouldDeleteDuringUpdate,
	})
	if err != nil {
		return nil, err
	}
	return &Storage{
		Namespace: &REST{endpoint: store, store: store},
		Status:    store.Subresource(statusStrategy{main}),
		Finalize:  store.Subresource(finalizeStrategy{main}),
	}, nil
}

// endpoint has the verbs of namespaces: all except deletecollection.
type endpoint interface {
	rest.Storage
	rest.StorageWithReadiness
	rest.StorageVersionProvider
	rest.Scoper
	rest.SingularNameProvider
	rest.ShortNamesProvider
	rest.CategoriesProvider
	rest.ResetFieldsStrategy
	rest.Getter
	rest.Lister
	rest.Watcher
	rest.CreaterUpdater
}

// REST is the main endpoint of namespaces.
type REST struct {
	endpoint
	store *typed.REST
}

var _ rest.GracefulDeleter = &REST{}

// shouldDeleteDuringUpdate removes the namespace with the last finalizer of both lists.
func shouldDeleteDuringUpdate(ctx context.Context, key string, obj, existing runtime.Object) bool {
	namespace, ok := obj.(*corev1.Namespace)
	return ok && len(namespace.Spec.Finalizers) == 0 && genericregistry.ShouldDeleteDuringUpdate(ctx, key, obj, existing)
}

var tableConvertor = table.New(corev1.Resource("namespaces"),
	table.Name[*corev1.Namespace](),
	table.Column[*corev1.Namespace]{
		Name:        "Status",
		Description: "The status of the namespace",
		Value:       func(namespace *corev1.Namespace) any { return string(namespace.Status.Phase) },
	},
	table.Age[*corev1.Namespace](),
)
