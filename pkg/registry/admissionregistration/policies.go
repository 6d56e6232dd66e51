// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/apis/admissionregistration/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/table"
)

type (
	validatingPolicy  = admissionregistrationv1.ValidatingAdmissionPolicy
	validatingBinding = admissionregistrationv1.ValidatingAdmissionPolicyBinding
	mutatingPolicy    = admissionregistrationv1.MutatingAdmissionPolicy
	mutatingBinding   = admissionregistrationv1.MutatingAdmissionPolicyBinding
)

func newResource(kind string, strategy typed.Strategy, table rest.TableConvertor) typed.Resource {
	return typed.Resource{
		Kind:       admissionregistrationv1.SchemeGroupVersion.WithKind(kind),
		Categories: []string{"api-extensions"},
		Strategy:   strategy,
		Table:      table,
	}
}

func validatingPolicies(access paramAccess) typed.Resource {
	return newResource("ValidatingAdmissionPolicy", typed.SpecStatusStrategy[*validatingPolicy]{
		ValidatedStrategy: authorizedPolicy(
			newValidated(validation.ValidateValidatingAdmissionPolicy, validation.ValidateValidatingAdmissionPolicyUpdate), access, validatingParamKind),
		ValidateStatusUpdateFunc: func(updated, _ *validatingPolicy) field.ErrorList {
			return validation.ValidateValidatingAdmissionPolicyStatusUpdate(updated)
		},
	}, validatingTable)
}

// mutatingPolicies describes the policies without a status.
func mutatingPolicies(access paramAccess) typed.Resource {
	return newResource("MutatingAdmissionPolicy", typed.GenerationStrategy[*mutatingPolicy]{
		ValidatedStrategy: authorizedPolicy(
			newValidated(validation.ValidateMutatingAdmissionPolicy, validation.ValidateMutatingAdmissionPolicyUpdate), access, mutatingParamKind),
		Field: "Spec",
	}, mutatingTable)
}

func validatingBindings(access paramAccess, params paramsOf) typed.Resource {
	return newResource("ValidatingAdmissionPolicyBinding", typed.GenerationStrategy[*validatingBinding]{
		ValidatedStrategy: authorizedBinding(validation.ValidateValidatingAdmissionPolicyBinding, access, validatingReference, params),
		Field:             "Spec",
	}, validatingBindingTable)
}

func mutatingBindings(access paramAccess, params paramsOf) typed.Resource {
	return newResource("MutatingAdmissionPolicyBinding", typed.GenerationStrategy[*mutatingBinding]{
		ValidatedStrategy: authorizedBinding(validation.ValidateMutatingAdmissionPolicyBinding, access, mutatingReference, params),
		Field:             "Spec",
	}, mutatingBindingTable)
}

// newValidated returns the validation of a kind whose new objects must not have a reserved name.
func newValidated[T table.Object](validate func(T) field.ErrorList, validateUpdate func(updated, old T) field.ErrorList) typed.ValidatedStrategy[T] {
	validated := typed.Validated(typed.ClusterScoped.RequiringVersion(), validate, validateUpdate)
	validated.ValidateFunc = func(_ context.Context, object T) field.ErrorList {
		return append(validate(object), validation.ValidateNewName(object.GetName())...)
	}
	return validated
}

// authorizedPolicy adds the authorization of the kind of parameters.
func authorizedPolicy[T table.Object](validated typed.ValidatedStrategy[T], access paramAccess, kindOf func(T) *admissionregistrationv1.ParamKind) typed.ValidatedStrategy[T] {
	return authorized(validated,
		func(ctx context.Context, policy T) *field.Error { return access.checkKind(ctx, kindOf(policy), nil) },
		func(ctx context.Context, updated, old T) *field.Error {
			return access.checkKind(ctx, kindOf(updated), kindOf(old))
		})
}

// authorizedBinding adds the authorization of the parameters.
func authorizedBinding[T table.Object](validate func(T) field.ErrorList, access paramAccess, referenceOf func(T) reference, params paramsOf) typed.ValidatedStrategy[T] {
	return authorized(newValidated(validate, nil),
		func(ctx context.Context, binding T) *field.Error {
			return access.checkReference(ctx, referenceOf(binding), reference{}, params)
		},
		func(ctx context.Context, updated, old T) *field.Error {
			return access.checkReference(ctx, referenceOf(updated), referenceOf(old), params)
		})
}

// authorized authorizes valid objects only.
func authorized[T table.Object](validated typed.ValidatedStrategy[T], create func(ctx context.Context, object T) *field.Error, update func(ctx context.Context, updated, old T) *field.Error) typed.ValidatedStrategy[T] {
	validate, validateUpdate := validated.ValidateFunc, validated.ValidateUpdateFunc
	validated.ValidateFunc = func(ctx context.Context, object T) field.ErrorList {
		if errs := validate(ctx, object); len(errs) > 0 {
			return errs
		}
		return listOf(create(ctx, object))
	}
	validated.ValidateUpdateFunc = func(ctx context.Context, updated, old T) field.ErrorList {
		if errs := validateUpdate(ctx, updated, old); len(errs) > 0 {
			return errs
		}
		return listOf(update(ctx, updated, old))
	}
	return validated
}

func listOf(err *field.Error) field.ErrorList {
	if err == nil {
		return nil
	}
	return field.ErrorList{err}
}

// paramKindOf reads the kind of the parameters of stored policies.
func paramKindOf[T table.Object](policies rest.Getter, kindOf func(T) *admissionregistrationv1.ParamKind) paramsOf {
	return func(ctx context.Context, policy string) (*admissionregistrationv1.ParamKind, error) {
		found, err := policies.Get(ctx, policy, &metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return kindOf(found.(T)), nil
	}
}

func validatingParamKind(policy *validatingPolicy) *admissionregistrationv1.ParamKind {
	return policy.Spec.ParamKind
}

func mutatingParamKind(policy *mutatingPolicy) *admissionregistrationv1.ParamKind {
	return policy.Spec.ParamKind
}

func validatingReference(binding *validatingBinding) reference {
	return reference{binding.Spec.PolicyName, binding.Spec.ParamRef}
}

func mutatingReference(binding *mutatingBinding) reference {
	return reference{binding.Spec.PolicyName, binding.Spec.ParamRef}
}
