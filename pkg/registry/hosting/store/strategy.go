// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package store is the REST storage of Stores.
package store

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

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

// ValidateUpdate lets annex itself change the etcd of the Store "default", which its flags name.
func (s strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	after, before := obj.(*v1alpha1.Store), old.(*v1alpha1.Store)
	if caller, ok := request.UserFrom(ctx); ok && caller.GetName() == user.APIServerUser && before.Name == v1alpha1.DefaultStoreName {
		before = before.DeepCopy()
		before.Spec.Embedded, before.Spec.Etcd = after.Spec.Embedded, after.Spec.Etcd
	}
	return s.SpecStatusStrategy.ValidateUpdate(ctx, after, before)
}
