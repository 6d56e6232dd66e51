// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package store is the REST storage of Stores.
package store

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/annex-dev/annex/pkg/apis/hosting"
	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apis/hosting/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// strategy is that of the main endpoint.
type strategy struct {
	typed.SpecStatusStrategy[*hosting.Store, hosting.StoreSpec, hosting.StoreStatus]
}

func newStrategy(typer runtime.ObjectTyper) strategy {
	return strategy{typed.SpecStatusStrategy[*hosting.Store, hosting.StoreSpec, hosting.StoreStatus]{
		BaseStrategy: typed.ClusterScoped(typer),
		Version:      v1alpha1.SchemeGroupVersion,
		Spec:         func(object *hosting.Store) *hosting.StoreSpec { return &object.Spec },
		Status:       func(object *hosting.Store) *hosting.StoreStatus { return &object.Status },
	}}
}

// PrepareForCreate keeps a Store from going while something is placed on it. The Store
// that always exists needs nothing for that.
func (s strategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	s.SpecStatusStrategy.PrepareForCreate(ctx, obj)
	store := obj.(*hosting.Store)
	if store.Name != hosting.DefaultStoreName && !slices.Contains(store.Finalizers, v1alpha1.StoreFinalizer) {
		store.Finalizers = append(store.Finalizers, v1alpha1.StoreFinalizer)
	}
}

func (strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return validation.ValidateStore(obj.(*hosting.Store))
}

func (strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateStoreUpdate(obj.(*hosting.Store), old.(*hosting.Store))
}

// statusStrategy is that of /status.
type statusStrategy struct {
	typed.StatusStrategy[*hosting.Store, hosting.StoreSpec, hosting.StoreStatus]
}

func newStatusStrategy(typer runtime.ObjectTyper) statusStrategy {
	return statusStrategy{newStrategy(typer).ForStatus()}
}

func (statusStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateStoreStatusUpdate(obj.(*hosting.Store), old.(*hosting.Store))
}
