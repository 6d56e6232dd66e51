// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package typed

import (
	"context"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/operation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/annex-dev/annex/pkg/apis/meta/validation"
	"github.com/annex-dev/annex/pkg/registry/table"
)

// BaseStrategy has the defaults of most resources: nothing to prepare, no validation,
// no warnings, generated names, no create on update, and updates without a resource
// version. A resource embeds it and overrides what differs.
type BaseStrategy struct {
	uniqueErrors
	runtime.ObjectTyper
	names.NameGenerator
	namespaced bool
}

var _ Strategy = BaseStrategy{}

// Namespaced returns the base of a namespaced resource.
func Namespaced(typer runtime.ObjectTyper) BaseStrategy {
	return BaseStrategy{ObjectTyper: typer, NameGenerator: names.SimpleNameGenerator, namespaced: true}
}

// ClusterScoped returns the base of a cluster-scoped resource.
func ClusterScoped(typer runtime.ObjectTyper) BaseStrategy {
	return BaseStrategy{ObjectTyper: typer, NameGenerator: names.SimpleNameGenerator}
}

// NamespaceScoped implements rest.Scoper.
func (s BaseStrategy) NamespaceScoped() bool { return s.namespaced }

// PrepareForCreate implements rest.RESTCreateStrategy.
func (BaseStrategy) PrepareForCreate(context.Context, runtime.Object) {}

// Validate implements rest.RESTCreateStrategy.
func (BaseStrategy) Validate(context.Context, runtime.Object) field.ErrorList { return nil }

// WarningsOnCreate implements rest.RESTCreateStrategy.
func (BaseStrategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

// Canonicalize implements rest.RESTCreateStrategy and rest.RESTUpdateStrategy.
func (BaseStrategy) Canonicalize(runtime.Object) {}

// AllowCreateOnUpdate implements rest.RESTUpdateStrategy.
func (BaseStrategy) AllowCreateOnUpdate(context.Context) bool { return false }

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (BaseStrategy) PrepareForUpdate(_ context.Context, _, _ runtime.Object) {}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (BaseStrategy) ValidateUpdate(_ context.Context, _, _ runtime.Object) field.ErrorList {
	return nil
}

// WarningsOnUpdate implements rest.RESTUpdateStrategy.
func (BaseStrategy) WarningsOnUpdate(_ context.Context, _, _ runtime.Object) []string { return nil }

// AllowUnconditionalUpdate implements rest.RESTUpdateStrategy.
func (BaseStrategy) AllowUnconditionalUpdate(context.Context) bool { return true }

// uniqueErrors drops the repetitions of an error, also those between a strategy and the generic
// registry, which both validate metadata. Kubernetes' strategies drop them where they add the
// errors of declarative validation. annex has none: its functions validate all. It drops all but the
// first errors of an object that has very many.
type uniqueErrors struct{}

var _ rest.DeclarativeValidationStrategy = uniqueErrors{}

// ValidateDeclaratively implements rest.DeclarativeValidationStrategy.
func (uniqueErrors) ValidateDeclaratively(_ context.Context, _, _ runtime.Object, errs field.ErrorList, _ operation.Type, _ rest.DeclarativeValidationConfig) field.ErrorList {
	return validation.LimitErrors(errs.Filter())
}

// DeclarativeValidationConfig implements rest.DeclarativeValidationStrategy.
func (uniqueErrors) DeclarativeValidationConfig(_ context.Context, _, _ runtime.Object) rest.DeclarativeValidationConfig {
	return rest.DeclarativeValidationConfig{}
}

// ValidatedStrategy is the strategy of a kind T that is validated by functions.
type ValidatedStrategy[T runtime.Object] struct {
	BaseStrategy
	// ValidateFunc and ValidateUpdateFunc validate what a create or an update stores.
	ValidateFunc       func(T) field.ErrorList
	ValidateUpdateFunc func(updated, old T) field.ErrorList
}

// Validated returns the strategy of a kind that differs from the base only in its
// validation.
func Validated[T runtime.Object](base BaseStrategy, validate func(T) field.ErrorList, validateUpdate func(updated, old T) field.ErrorList) ValidatedStrategy[T] {
	return ValidatedStrategy[T]{BaseStrategy: base, ValidateFunc: validate, ValidateUpdateFunc: validateUpdate}
}

// Validate implements rest.RESTCreateStrategy.
func (s ValidatedStrategy[T]) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return s.ValidateFunc(obj.(T))
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s ValidatedStrategy[T]) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return s.ValidateUpdateFunc(obj.(T), old.(T))
}

// SpecStatusStrategy is the strategy of the main endpoint of a kind T with a spec and a
// status: it writes metadata and spec, and increments the generation when the spec
// changes. The generic registry increments it on deletion.
type SpecStatusStrategy[T table.Object, Spec, Status any] struct {
	ValidatedStrategy[T]
	// ValidateStatusUpdateFunc validates an update of the endpoint /status.
	ValidateStatusUpdateFunc func(updated, old T) field.ErrorList
	// Version is the only version of the kind.
	Version schema.GroupVersion
	// Spec and Status return those of an object.
	Spec   func(T) *Spec
	Status func(T) *Status
	// NoGeneration is set for kinds of Kubernetes that have no generation.
	NoGeneration bool
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (s SpecStatusStrategy[T, Spec, Status]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return ResetFields(s.Version, "status")
}

// PrepareForCreate implements rest.RESTCreateStrategy.
func (s SpecStatusStrategy[T, Spec, Status]) PrepareForCreate(_ context.Context, obj runtime.Object) {
	var none Status
	*s.Status(obj.(T)) = none
	if !s.NoGeneration {
		obj.(T).SetGeneration(1)
	}
}

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (s SpecStatusStrategy[T, Spec, Status]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	updated, before := obj.(T), old.(T)
	*s.Status(updated) = *s.Status(before)
	if !s.NoGeneration && !apiequality.Semantic.DeepEqual(s.Spec(updated), s.Spec(before)) {
		updated.SetGeneration(before.GetGeneration() + 1)
	}
}

// ForStatus returns the strategy of the endpoint /status of the kind.
func (s SpecStatusStrategy[T, Spec, Status]) ForStatus() StatusStrategy[T, Spec, Status] {
	return StatusStrategy[T, Spec, Status]{SpecStatusStrategy: s}
}

// StatusStrategy writes only the status.
type StatusStrategy[T table.Object, Spec, Status any] struct {
	SpecStatusStrategy[T, Spec, Status]
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (s StatusStrategy[T, Spec, Status]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return ResetFields(s.Version, "metadata", "spec")
}

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (s StatusStrategy[T, Spec, Status]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	updated, before := obj.(T), old.(T)
	*s.Spec(updated) = *s.Spec(before)
	metav1.ResetObjectMetaForStatus(updated, before)
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s StatusStrategy[T, Spec, Status]) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return s.ValidateStatusUpdateFunc(obj.(T), old.(T))
}

// ResetFields returns top-level fields of a kind with one version, as
// rest.ResetFieldsStrategy does.
func ResetFields(version schema.GroupVersion, names ...string) map[fieldpath.APIVersion]*fieldpath.Set {
	set := fieldpath.NewSet()
	for _, name := range names {
		set.Insert(fieldpath.MakePathOrDie(name))
	}
	return map[fieldpath.APIVersion]*fieldpath.Set{fieldpath.APIVersion(version.String()): set}
}
