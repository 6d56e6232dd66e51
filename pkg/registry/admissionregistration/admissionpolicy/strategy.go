// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admissionpolicy is the REST storage of validating and mutating admission
// policies and of their bindings.
package admissionpolicy

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/annex-dev/annex/pkg/apis/admissionregistration/validation"
	"github.com/annex-dev/annex/pkg/registry/table"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// strategy is that of all four kinds T.
type strategy[T table.Object] struct {
	typed.ValidatedStrategy[T]
	spec func(T) any
	// authorize rejects parameters that the caller cannot read. old is nil for a new object.
	authorize func(ctx context.Context, object T, old runtime.Object) *field.Error
}

func policyStrategy[T table.Object](validated typed.ValidatedStrategy[T], access ParamAccess, spec func(T) any, kindOf func(T) *admissionregistrationv1.ParamKind) strategy[T] {
	return strategy[T]{ValidatedStrategy: validated, spec: spec, authorize: func(ctx context.Context, policy T, old runtime.Object) *field.Error {
		var stored *admissionregistrationv1.ParamKind
		if old, ok := old.(T); ok {
			stored = kindOf(old)
		}
		return access.checkKind(ctx, kindOf(policy), stored)
	}}
}

func bindingStrategy[T table.Object](base typed.BaseStrategy, validate func(T) field.ErrorList, access ParamAccess,
	spec func(T) any, referenceOf func(T) reference, params paramsOf,
) strategy[T] {
	validated := typed.Validated(base, validate, func(updated, _ T) field.ErrorList { return validate(updated) })
	return strategy[T]{ValidatedStrategy: validated, spec: spec, authorize: func(ctx context.Context, binding T, old runtime.Object) *field.Error {
		var stored reference
		if old, ok := old.(T); ok {
			stored = referenceOf(old)
		}
		return access.checkReference(ctx, referenceOf(binding), stored, params)
	}}
}

func (strategy[T]) PrepareForCreate(_ context.Context, obj runtime.Object) {
	obj.(T).SetGeneration(1)
}

func (s strategy[T]) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	if !apiequality.Semantic.DeepEqual(s.spec(obj.(T)), s.spec(old.(T))) {
		obj.(T).SetGeneration(old.(T).GetGeneration() + 1)
	}
}

func (s strategy[T]) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return s.authorized(ctx, append(s.ValidateFunc(obj.(T)), validation.ValidateNewName(obj.(T).GetName())...), obj.(T), nil)
}

func (s strategy[T]) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return s.authorized(ctx, s.ValidateUpdateFunc(obj.(T), old.(T)), obj.(T), old)
}

// authorized checks access only for valid objects.
func (s strategy[T]) authorized(ctx context.Context, errs field.ErrorList, object T, old runtime.Object) field.ErrorList {
	if len(errs) > 0 {
		return errs
	}
	if err := s.authorize(ctx, object, old); err != nil {
		return field.ErrorList{err}
	}
	return nil
}

// AllowUnconditionalUpdate is false: an update must have read the policy first.
func (strategy[T]) AllowUnconditionalUpdate(context.Context) bool { return false }

// validatingStrategy is that of validating policies, the only ones with a status.
type validatingStrategy struct {
	strategy[*validatingPolicy]
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (validatingStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return typed.ResetFields(admissionregistrationv1.SchemeGroupVersion, "status")
}

func (s validatingStrategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	obj.(*validatingPolicy).Status = admissionregistrationv1.ValidatingAdmissionPolicyStatus{}
	s.strategy.PrepareForCreate(ctx, obj)
}

func (s validatingStrategy) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	obj.(*validatingPolicy).Status = old.(*validatingPolicy).Status
	s.strategy.PrepareForUpdate(ctx, obj, old)
}

// statusStrategy writes only the status.
type statusStrategy struct {
	validatingStrategy
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return typed.ResetFields(admissionregistrationv1.SchemeGroupVersion, "metadata", "spec")
}

func (statusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	updated, stored := obj.(*validatingPolicy), old.(*validatingPolicy)
	updated.Spec = stored.Spec
	metav1.ResetObjectMetaForStatus(&updated.ObjectMeta, &stored.ObjectMeta)
}

func (statusStrategy) ValidateUpdate(_ context.Context, obj, _ runtime.Object) field.ErrorList {
	return validation.ValidateValidatingAdmissionPolicyStatusUpdate(obj.(*validatingPolicy))
}
