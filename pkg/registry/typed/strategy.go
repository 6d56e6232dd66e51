// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package typed

import (
	"context"
	"reflect"

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
	"github.com/annex-dev/annex/pkg/apis/scheme"
	"github.com/annex-dev/annex/pkg/table"
)

// BaseStrategy has the defaults of most resources: nothing to prepare, no validation,
// no warnings, generated names, no create on update, and updates without a resource
// version. A resource embeds it and overrides what differs.
type BaseStrategy struct {
	uniqueErrors
	runtime.ObjectTyper
	names.NameGenerator
	namespaced      bool
	createOnUpdate  bool
	requiresVersion bool
}

var _ Strategy = BaseStrategy{}

var (
	// Namespaced is the base of namespaced resources.
	Namespaced = BaseStrategy{ObjectTyper: scheme.Scheme, NameGenerator: names.SimpleNameGenerator, namespaced: true}
	// ClusterScoped is the base of cluster-scoped resources.
	ClusterScoped = BaseStrategy{ObjectTyper: scheme.Scheme, NameGenerator: names.SimpleNameGenerator}
)

// CreatingOnUpdate returns a copy that lets an update create an object that does not exist.
func (s BaseStrategy) CreatingOnUpdate() BaseStrategy {
	s.createOnUpdate = true
	return s
}

// RequiringVersion returns a copy that refuses updates without a resource version, so that
// writers cannot overwrite each other.
func (s BaseStrategy) RequiringVersion() BaseStrategy {
	s.requiresVersion = true
	return s
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
func (s BaseStrategy) AllowCreateOnUpdate(context.Context) bool { return s.createOnUpdate }

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (BaseStrategy) PrepareForUpdate(_ context.Context, _, _ runtime.Object) {}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (BaseStrategy) ValidateUpdate(_ context.Context, _, _ runtime.Object) field.ErrorList {
	return nil
}

// WarningsOnUpdate implements rest.RESTUpdateStrategy.
func (BaseStrategy) WarningsOnUpdate(_ context.Context, _, _ runtime.Object) []string { return nil }

// AllowUnconditionalUpdate implements rest.RESTUpdateStrategy.
func (s BaseStrategy) AllowUnconditionalUpdate(context.Context) bool { return !s.requiresVersion }

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
	// ValidateFunc and ValidateUpdateFunc validate the object that a create or an update stores.
	ValidateFunc       func(ctx context.Context, object T) field.ErrorList
	ValidateUpdateFunc func(ctx context.Context, updated, old T) field.ErrorList
}

// Validated returns the strategy of a kind that differs from the base only in its
// validation, which needs no request. Without validateUpdate, updates are validated as creates.
func Validated[T runtime.Object](base BaseStrategy, validate func(T) field.ErrorList, validateUpdate func(updated, old T) field.ErrorList) ValidatedStrategy[T] {
	if validateUpdate == nil {
		validateUpdate = func(updated, _ T) field.ErrorList { return validate(updated) }
	}
	return ValidatedStrategy[T]{
		BaseStrategy:       base,
		ValidateFunc:       func(_ context.Context, object T) field.ErrorList { return validate(object) },
		ValidateUpdateFunc: func(_ context.Context, updated, old T) field.ErrorList { return validateUpdate(updated, old) },
	}
}

// Validate implements rest.RESTCreateStrategy.
func (s ValidatedStrategy[T]) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return s.ValidateFunc(ctx, obj.(T))
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s ValidatedStrategy[T]) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return s.ValidateUpdateFunc(ctx, obj.(T), old.(T))
}

// GenerationStrategy increments the generation of a kind T without a status when a field changes.
type GenerationStrategy[T table.Object] struct {
	ValidatedStrategy[T]
	// Field is the Go name of the field.
	Field string
}

// PrepareForCreate implements rest.RESTCreateStrategy.
func (GenerationStrategy[T]) PrepareForCreate(_ context.Context, obj runtime.Object) {
	obj.(T).SetGeneration(1)
}

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (s GenerationStrategy[T]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	countGeneration(obj.(T), old.(T), s.Field)
}

// countGeneration increments the generation if the field differs from the stored one.
func countGeneration[T table.Object](updated, before T, name string) {
	if !apiequality.Semantic.DeepEqual(fieldOf(updated, name).Interface(), fieldOf(before, name).Interface()) {
		updated.SetGeneration(before.GetGeneration() + 1)
	}
}

// fieldOf returns a field of an API object, by its Go name.
func fieldOf(object runtime.Object, name string) reflect.Value {
	return reflect.ValueOf(object).Elem().FieldByName(name)
}

// SpecStatusStrategy is the strategy of the main endpoint of a kind T with the fields Spec and
// Status: it writes metadata and spec, and increments the generation when the spec changes. The
// generic registry increments it on deletion.
type SpecStatusStrategy[T table.Object] struct {
	ValidatedStrategy[T]
	// ValidateStatusUpdateFunc validates an update of the endpoint /status.
	ValidateStatusUpdateFunc func(updated, old T) field.ErrorList
	// NoGeneration is set for kinds of Kubernetes that have no generation.
	NoGeneration bool
}

// PrepareForCreate implements rest.RESTCreateStrategy.
func (s SpecStatusStrategy[T]) PrepareForCreate(_ context.Context, obj runtime.Object) {
	fieldOf(obj, "Status").SetZero()
	if !s.NoGeneration {
		obj.(T).SetGeneration(1)
	}
}

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (s SpecStatusStrategy[T]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	fieldOf(obj, "Status").Set(fieldOf(old, "Status"))
	if !s.NoGeneration {
		countGeneration(obj.(T), old.(T), "Spec")
	}
}

// ForStatus returns the strategy of the endpoint /status of the kind.
func (s SpecStatusStrategy[T]) ForStatus() rest.RESTUpdateStrategy {
	return statusStrategy[T]{SpecStatusStrategy: s}
}

// statusStrategy writes only the status.
type statusStrategy[T table.Object] struct {
	SpecStatusStrategy[T]
}

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (s statusStrategy[T]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	fieldOf(obj, "Spec").Set(fieldOf(old, "Spec"))
	metav1.ResetObjectMetaForStatus(obj.(T), old.(T))
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s statusStrategy[T]) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return s.ValidateStatusUpdateFunc(obj.(T), old.(T))
}

// resetFields are the fields that an endpoint ignores, for server-side apply.
type resetFields map[fieldpath.APIVersion]*fieldpath.Set

// GetResetFields implements rest.ResetFieldsStrategy.
func (r resetFields) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set { return r }

// ResetFields returns top-level fields of a kind with one version, as
// rest.ResetFieldsStrategy does.
func ResetFields(version schema.GroupVersion, names ...string) map[fieldpath.APIVersion]*fieldpath.Set {
	set := fieldpath.NewSet()
	for _, name := range names {
		set.Insert(fieldpath.MakePathOrDie(name))
	}
	return map[fieldpath.APIVersion]*fieldpath.Set{fieldpath.APIVersion(version.String()): set}
}
