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

// strategy is that of all four kinds, T being one of them.
type strategy[T table.Object] struct {
	typed.BaseStrategy
	spec           func(T) any
	validate       func(T) field.ErrorList
	validateUpdate func(updated, old T) field.ErrorList
	// authorize refuses parameters that the caller cannot read. old is nil for a
	// new object.
	authorize func(ctx context.Context, object, old T) *field.Error
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
	errs := append(s.validate(obj.(T)), validation.ValidateNewName(obj.(T).GetName())...)
	var none T
	return s.authorized(ctx, errs, obj.(T), none)
}

func (s strategy[T]) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return s.authorized(ctx, s.validateUpdate(obj.(T), old.(T)), obj.(T), old.(T))
}

// authorized asks for rights only where the object is well-formed, and so names
// the parameters that are meant.
func (s strategy[T]) authorized(ctx context.Context, errs field.ErrorList, object, old T) field.ErrorList {
	if len(errs) > 0 {
		return errs
	}
	if err := s.authorize(ctx, object, old); err != nil {
		return field.ErrorList{err}
	}
	return nil
}

// AllowUnconditionalUpdate is false: who changes a policy must have seen it.
func (strategy[T]) AllowUnconditionalUpdate(context.Context) bool { return false }

// validatingStrategy is that of validating policies, which alone have a status.
type validatingStrategy struct {
	strategy[*admissionregistrationv1.ValidatingAdmissionPolicy]
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (validatingStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return typed.ResetFields(admissionregistrationv1.SchemeGroupVersion, "status")
}

func (s validatingStrategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	obj.(*admissionregistrationv1.ValidatingAdmissionPolicy).Status = admissionregistrationv1.ValidatingAdmissionPolicyStatus{}
	s.strategy.PrepareForCreate(ctx, obj)
}

func (s validatingStrategy) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	obj.(*admissionregistrationv1.ValidatingAdmissionPolicy).Status = old.(*admissionregistrationv1.ValidatingAdmissionPolicy).Status
	s.strategy.PrepareForUpdate(ctx, obj, old)
}

// statusStrategy is that of /status: it writes status and nothing else.
type statusStrategy struct {
	validatingStrategy
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return typed.ResetFields(admissionregistrationv1.SchemeGroupVersion, "metadata", "spec")
}

func (statusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	updated, stored := obj.(*admissionregistrationv1.ValidatingAdmissionPolicy), old.(*admissionregistrationv1.ValidatingAdmissionPolicy)
	updated.Spec = stored.Spec
	metav1.ResetObjectMetaForStatus(&updated.ObjectMeta, &stored.ObjectMeta)
}

func (statusStrategy) ValidateUpdate(_ context.Context, obj, _ runtime.Object) field.ErrorList {
	return validation.ValidateValidatingAdmissionPolicyStatusUpdate(obj.(*admissionregistrationv1.ValidatingAdmissionPolicy))
}
