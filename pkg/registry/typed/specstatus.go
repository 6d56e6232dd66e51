// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package typed

import (
	"context"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// SpecStatusStrategy is the base of a kind T with a spec and a status, as its main endpoint
// has it: that writes metadata and spec, and each other spec raises the generation.
// The generic registry raises the generation of a deletion by itself.
type SpecStatusStrategy[T metav1.Object, Spec, Status any] struct {
	BaseStrategy
	// Version is the one version of the kind.
	Version schema.GroupVersion
	// Spec and Status find them in an object.
	Spec   func(T) *Spec
	Status func(T) *Status
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (s SpecStatusStrategy[T, Spec, Status]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return ResetFields(s.Version, "status")
}

// PrepareForCreate implements rest.RESTCreateStrategy.
func (s SpecStatusStrategy[T, Spec, Status]) PrepareForCreate(_ context.Context, obj runtime.Object) {
	var none Status
	*s.Status(obj.(T)) = none
	obj.(T).SetGeneration(1)
}

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (s SpecStatusStrategy[T, Spec, Status]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	updated, before := obj.(T), old.(T)
	*s.Status(updated) = *s.Status(before)
	if !apiequality.Semantic.DeepEqual(s.Spec(updated), s.Spec(before)) {
		updated.SetGeneration(before.GetGeneration() + 1)
	}
}

// ForStatus is the base of the same kind as its endpoint /status has it.
func (s SpecStatusStrategy[T, Spec, Status]) ForStatus() StatusStrategy[T, Spec, Status] {
	return StatusStrategy[T, Spec, Status]{of: s, BaseStrategy: s.BaseStrategy}
}

// StatusStrategy writes status and nothing else.
type StatusStrategy[T metav1.Object, Spec, Status any] struct {
	BaseStrategy
	of SpecStatusStrategy[T, Spec, Status]
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (s StatusStrategy[T, Spec, Status]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return ResetFields(s.of.Version, "metadata", "spec")
}

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (s StatusStrategy[T, Spec, Status]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	updated, before := obj.(T), old.(T)
	*s.of.Spec(updated) = *s.of.Spec(before)
	metav1.ResetObjectMetaForStatus(updated, before)
}
