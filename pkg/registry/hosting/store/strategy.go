// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package store is the REST storage of Stores.
package store

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apis/hosting/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// strategy is that of the main endpoint.
type strategy struct {
	typed.SpecStatusStrategy[*v1alpha1.Store, v1alpha1.StoreSpec, v1alpha1.StoreStatus]
}

func newStrategy(typer runtime.ObjectTyper) strategy {
	return strategy{typed.SpecStatusStrategy[*v1alpha1.Store, v1alpha1.StoreSpec, v1alpha1.StoreStatus]{
		ValidatedStrategy:        typed.Validated(typed.ClusterScoped(typer), validation.ValidateStore, validation.ValidateStoreUpdate),
		ValidateStatusUpdateFunc: validation.ValidateStoreStatusUpdate,
		Version:                  v1alpha1.SchemeGroupVersion,
		Spec:                     func(object *v1alpha1.Store) *v1alpha1.StoreSpec { return &object.Spec },
		Status:                   func(object *v1alpha1.Store) *v1alpha1.StoreStatus { return &object.Status },
	}}
}

// PrepareForCreate adds the finalizer, except to the Store "default", which cannot be
// deleted.
func (s strategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	s.SpecStatusStrategy.PrepareForCreate(ctx, obj)
	store := obj.(*v1alpha1.Store)
	if store.Name != v1alpha1.DefaultStoreName && !slices.Contains(store.Finalizers, v1alpha1.StoreFinalizer) {
		store.Finalizers = append(store.Finalizers, v1alpha1.StoreFinalizer)
	}
}
