// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/apis/admissionregistration/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// Storage has the endpoints of policies and their bindings.
type Storage struct {
	Validating        *typed.REST
	ValidatingStatus  *typed.SubresourceREST
	ValidatingBinding *typed.REST
	Mutating          *typed.REST
	MutatingBinding   *typed.REST
}

type (
	validatingPolicy  = admissionregistrationv1.ValidatingAdmissionPolicy
	validatingBinding = admissionregistrationv1.ValidatingAdmissionPolicyBinding
	mutatingPolicy    = admissionregistrationv1.MutatingAdmissionPolicy
	mutatingBinding   = admissionregistrationv1.MutatingAdmissionPolicyBinding
)

// NewStorage returns the endpoints.
func NewStorage(scheme *runtime.Scheme, getter generic.RESTOptionsGetter, access ParamAccess) (*Storage, error) {
	s, base := &Storage{}, typed.ClusterScoped(scheme)
	validating := validatingStrategy{policyStrategy(
		typed.Validated(base, validation.ValidateValidatingAdmissionPolicy, validation.ValidateValidatingAdmissionPolicyUpdate),
		access, func(policy *validatingPolicy) any { return policy.Spec }, validatingParamKind)}
	mutating := policyStrategy(
		typed.Validated(base, validation.ValidateMutatingAdmissionPolicy, validation.ValidateMutatingAdmissionPolicyUpdate),
		access, func(policy *mutatingPolicy) any { return policy.Spec }, mutatingParamKind)
	validatingBindings := bindingStrategy(base, validation.ValidateValidatingAdmissionPolicyBinding, access,
		func(binding *validatingBinding) any { return binding.Spec }, validatingReference, s.validatingParams)
	mutatingBindings := bindingStrategy(base, validation.ValidateMutatingAdmissionPolicyBinding, access,
		func(binding *mutatingBinding) any { return binding.Spec }, mutatingReference, s.mutatingParams)

	for _, resource := range []struct {
		endpoint **typed.REST
		kind     string
		strategy typed.Strategy
		table    rest.TableConvertor
	}{
		{&s.Validating, "ValidatingAdmissionPolicy", validating, validatingTable},
		{&s.Mutating, "MutatingAdmissionPolicy", mutating, mutatingTable},
		{&s.ValidatingBinding, "ValidatingAdmissionPolicyBinding", validatingBindings, validatingBindingTable},
		{&s.MutatingBinding, "MutatingAdmissionPolicyBinding", mutatingBindings, mutatingBindingTable},
	} {
		endpoint, err := typed.NewREST(scheme, getter, typed.Resource{
			Kind:       admissionregistrationv1.SchemeGroupVersion.WithKind(resource.kind),
			Categories: []string{"api-extensions"},
			Strategy:   resource.strategy,
			Table:      resource.table,
		})
		if err != nil {
			return nil, err
		}
		*resource.endpoint = endpoint
	}
	s.ValidatingStatus = s.Validating.Subresource(statusStrategy{validating})
	return s, nil
}

// validatingParams returns the kind of the parameters of a validating policy.
func (s *Storage) validatingParams(ctx context.Context, policy string) (*admissionregistrationv1.ParamKind, error) {
	found, err := s.Validating.Get(ctx, policy, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return validatingParamKind(found.(*validatingPolicy)), nil
}

// mutatingParams returns the kind of the parameters of a mutating policy.
func (s *Storage) mutatingParams(ctx context.Context, policy string) (*admissionregistrationv1.ParamKind, error) {
	found, err := s.Mutating.Get(ctx, policy, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return mutatingParamKind(found.(*mutatingPolicy)), nil
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
