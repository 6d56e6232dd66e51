// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package typed

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// BaseStrategy gives the answers that most resources give: nothing to prepare,
// nothing wrong, no warnings, names generated, a PUT does not create, and it may
// leave out the resource version. A resource embeds it and states the rest.
type BaseStrategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	namespaced bool
}

var _ Strategy = BaseStrategy{}

// Namespaced is the base of a resource whose objects live in namespaces.
func Namespaced(typer runtime.ObjectTyper) BaseStrategy {
	return BaseStrategy{ObjectTyper: typer, NameGenerator: names.SimpleNameGenerator, namespaced: true}
}

// ClusterScoped is the base of a resource whose objects do not.
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

// ResetFields is the answer of rest.ResetFieldsStrategy for top-level fields of a
// kind with one version.
func ResetFields(version schema.GroupVersion, names ...string) map[fieldpath.APIVersion]*fieldpath.Set {
	set := fieldpath.NewSet()
	for _, name := range names {
		set.Insert(fieldpath.MakePathOrDie(name))
	}
	return map[fieldpath.APIVersion]*fieldpath.Set{fieldpath.APIVersion(version.String()): set}
}
