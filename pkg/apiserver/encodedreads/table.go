// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package encodedreads

import (
	"context"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	"github.com/annex-dev/annex/pkg/storage/encoded"
)

// columnsOf returns the columns of a version. Without any the age is shown, as upstream does
// (k8s.io/apiextensions-apiserver/pkg/apiserver/helpers.go).
func columnsOf(definition *apiextensionsv1.CustomResourceDefinition, version string) []apiextensionsv1.CustomResourceColumnDefinition {
	for i := range definition.Spec.Versions {
		if v := &definition.Spec.Versions[i]; v.Name == version && len(v.AdditionalPrinterColumns) > 0 {
			return v.AdditionalPrinterColumns
		}
	}
	return []apiextensionsv1.CustomResourceColumnDefinition{{
		Name: "Age", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"], JSONPath: ".metadata.creationTimestamp",
	}}
}

// tableStore returns objects of which only what a table shows is decoded.
type tableStore struct {
	*genericregistry.Store
	columns *encoded.Columns
}

func newTableStore(store *genericregistry.Store, columns []apiextensionsv1.CustomResourceColumnDefinition) tableStore {
	paths := make([]string, len(columns))
	for i := range columns {
		paths[i] = columns[i].JSONPath
	}
	return tableStore{store, encoded.NewColumns(paths)}
}

// Get implements rest.Getter.
func (s tableStore) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	object, err := s.Store.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return s.columns.Row(object.(*encoded.Object))
}

// List implements rest.Lister.
func (s tableStore) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	list, err := s.Store.List(ctx, options)
	if err != nil {
		return nil, err
	}
	return s.columns.Rows(list.(*encoded.List))
}

// Watch implements rest.Watcher.
func (s tableStore) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	events, err := s.Store.Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	return s.columns.Watch(events), nil
}
