// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package store is the REST storage of Stores.
package store

import (
	"context"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/annex-dev/annex/pkg/apis/hosting"
	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apis/hosting/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// strategy is that of the main endpoint: it writes spec and metadata.
type strategy struct {
	typed.BaseStrategy
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return typed.ResetFields(v1alpha1.SchemeGroupVersion, "status")
}

func (strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	store := obj.(*hosting.Store)
	store.Status = hosting.StoreStatus{}
	store.Generation = 1
}

func (strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return validation.ValidateStore(obj.(*hosting.Store))
}

// WarningsOnCreate says what a Store is not used for yet.
func (strategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	if obj.(*hosting.Store).Name == hosting.DefaultStoreName {
		return nil
	}
	return []string{`this version of annex keeps every object in the Store "default": nothing will be placed on this one`}
}

func (strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	newStore, oldStore := obj.(*hosting.Store), old.(*hosting.Store)
	newStore.Status = oldStore.Status
	if mustIncreaseGeneration(newStore, oldStore) {
		newStore.Generation = oldStore.Generation + 1
	}
}

func (strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateStoreUpdate(obj.(*hosting.Store), old.(*hosting.Store))
}

// mustIncreaseGeneration is true for an update that asks for another state than
// before. The generic registry raises the generation of a deletion by itself.
func mustIncreaseGeneration(newStore, oldStore *hosting.Store) bool {
	return !apiequality.Semantic.DeepEqual(newStore.Spec, oldStore.Spec)
}

// statusStrategy is that of /status: it writes status and nothing else.
type statusStrategy struct {
	strategy
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return typed.ResetFields(v1alpha1.SchemeGroupVersion, "metadata", "spec")
}

func (statusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	newStore, oldStore := obj.(*hosting.Store), old.(*hosting.Store)
	newStore.Spec = oldStore.Spec
	metav1.ResetObjectMetaForStatus(&newStore.ObjectMeta, &oldStore.ObjectMeta)
}

func (statusStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateStoreStatusUpdate(obj.(*hosting.Store), old.(*hosting.Store))
}
