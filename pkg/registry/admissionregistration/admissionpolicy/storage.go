// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/annex-dev/annex/pkg/apis/admissionregistration/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// categories are what kubectl lists these kinds under, as in Kubernetes.
var categories = []string{"api-extensions"}

// Storage is the endpoints of policies and their bindings.
type Storage struct {
	Validating        *typed.REST
	ValidatingStatus  *typed.SubresourceREST
	ValidatingBinding *typed.REST
	Mutating          *typed.REST
	MutatingBinding   *typed.REST
}

// NewStorage returns the endpoints. A policy whose parameters the caller cannot
// read is refused by access.
func NewStorage(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter, access ParamAccess) (*Storage, error) {
	storage := &Storage{}
	base := typed.ClusterScoped(typer)
	validating := newValidatingStrategy(base, access)
	for _, newStore := range []func() error{
		func() (err error) { storage.Validating, err = newValidatingStore(validating, getter); return err },
		func() (err error) { storage.Mutating, err = newMutatingStore(base, access, getter); return err },
		func() (err error) {
			storage.ValidatingBinding, err = newValidatingBindingStore(base, access, storage.validatingParams, getter)
			return err
		},
		func() (err error) {
			storage.MutatingBinding, err = newMutatingBindingStore(base, access, storage.mutatingParams, getter)
			return err
		},
	} {
		if err := newStore(); err != nil {
			return nil, err
		}
	}
	storage.ValidatingStatus = storage.Validating.Subresource(statusStrategy{validating})
	return storage, nil
}

// validatingParams is the kind of the parameters of a policy, nil if it has none.
func (s *Storage) validatingParams(ctx context.Context, policy string) (*admissionregistrationv1.ParamKind, error) {
	found, err := s.Validating.Get(ctx, policy, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return found.(*admissionregistrationv1.ValidatingAdmissionPolicy).Spec.ParamKind, nil
}

// mutatingParams is validatingParams of a mutating policy.
func (s *Storage) mutatingParams(ctx context.Context, policy string) (*admissionregistrationv1.ParamKind, error) {
	found, err := s.Mutating.Get(ctx, policy, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return found.(*admissionregistrationv1.MutatingAdmissionPolicy).Spec.ParamKind, nil
}

func newValidatingStrategy(base typed.BaseStrategy, access ParamAccess) validatingStrategy {
	return validatingStrategy{strategy[*admissionregistrationv1.ValidatingAdmissionPolicy]{
		BaseStrategy:   base,
		spec:           func(policy *admissionregistrationv1.ValidatingAdmissionPolicy) any { return policy.Spec },
		validate:       validation.ValidateValidatingAdmissionPolicy,
		validateUpdate: validation.ValidateValidatingAdmissionPolicyUpdate,
		authorize: func(ctx context.Context, policy, old *admissionregistrationv1.ValidatingAdmissionPolicy) *field.Error {
			var stored *admissionregistrationv1.ParamKind
			if old != nil {
				stored = old.Spec.ParamKind
			}
			return access.checkKind(ctx, policy.Spec.ParamKind, stored)
		},
	}}
}

func newValidatingStore(strategy validatingStrategy, getter generic.RESTOptionsGetter) (*typed.REST, error) {
	return typed.NewREST(typed.Resource{
		Resource:   admissionregistrationv1.Resource("validatingadmissionpolicies"),
		Singular:   "validatingadmissionpolicy",
		Categories: categories,
		New:        func() runtime.Object { return &admissionregistrationv1.ValidatingAdmissionPolicy{} },
		NewList:    func() runtime.Object { return &admissionregistrationv1.ValidatingAdmissionPolicyList{} },
		Strategy:   strategy,
		Table:      validatingTable,
	}, getter)
}

func newMutatingStore(base typed.BaseStrategy, access ParamAccess, getter generic.RESTOptionsGetter) (*typed.REST, error) {
	return typed.NewREST(typed.Resource{
		Resource:   admissionregistrationv1.Resource("mutatingadmissionpolicies"),
		Singular:   "mutatingadmissionpolicy",
		Categories: categories,
		New:        func() runtime.Object { return &admissionregistrationv1.MutatingAdmissionPolicy{} },
		NewList:    func() runtime.Object { return &admissionregistrationv1.MutatingAdmissionPolicyList{} },
		Strategy: strategy[*admissionregistrationv1.MutatingAdmissionPolicy]{
			BaseStrategy:   base,
			spec:           func(policy *admissionregistrationv1.MutatingAdmissionPolicy) any { return policy.Spec },
			validate:       validation.ValidateMutatingAdmissionPolicy,
			validateUpdate: validation.ValidateMutatingAdmissionPolicyUpdate,
			authorize: func(ctx context.Context, policy, old *admissionregistrationv1.MutatingAdmissionPolicy) *field.Error {
				var stored *admissionregistrationv1.ParamKind
				if old != nil {
					stored = old.Spec.ParamKind
				}
				return access.checkKind(ctx, policy.Spec.ParamKind, stored)
			},
		},
		Table: mutatingTable,
	}, getter)
}

func newValidatingBindingStore(base typed.BaseStrategy, access ParamAccess, params paramsOf, getter generic.RESTOptionsGetter) (*typed.REST, error) {
	type binding = admissionregistrationv1.ValidatingAdmissionPolicyBinding
	return typed.NewREST(typed.Resource{
		Resource:   admissionregistrationv1.Resource("validatingadmissionpolicybindings"),
		Singular:   "validatingadmissionpolicybinding",
		Categories: categories,
		New:        func() runtime.Object { return &binding{} },
		NewList:    func() runtime.Object { return &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{} },
		Strategy: strategy[*binding]{
			BaseStrategy: base,
			spec:         func(b *binding) any { return b.Spec },
			validate:     validation.ValidateValidatingAdmissionPolicyBinding,
			validateUpdate: func(updated, _ *binding) field.ErrorList {
				return validation.ValidateValidatingAdmissionPolicyBinding(updated)
			},
			authorize: func(ctx context.Context, b, old *binding) *field.Error {
				var stored reference
				if old != nil {
					stored = reference{old.Spec.PolicyName, old.Spec.ParamRef}
				}
				return access.checkReference(ctx, reference{b.Spec.PolicyName, b.Spec.ParamRef}, stored, params)
			},
		},
		Table: validatingBindingTable,
	}, getter)
}

func newMutatingBindingStore(base typed.BaseStrategy, access ParamAccess, params paramsOf, getter generic.RESTOptionsGetter) (*typed.REST, error) {
	type binding = admissionregistrationv1.MutatingAdmissionPolicyBinding
	return typed.NewREST(typed.Resource{
		Resource:   admissionregistrationv1.Resource("mutatingadmissionpolicybindings"),
		Singular:   "mutatingadmissionpolicybinding",
		Categories: categories,
		New:        func() runtime.Object { return &binding{} },
		NewList:    func() runtime.Object { return &admissionregistrationv1.MutatingAdmissionPolicyBindingList{} },
		Strategy: strategy[*binding]{
			BaseStrategy: base,
			spec:         func(b *binding) any { return b.Spec },
			validate:     validation.ValidateMutatingAdmissionPolicyBinding,
			validateUpdate: func(updated, _ *binding) field.ErrorList {
				return validation.ValidateMutatingAdmissionPolicyBinding(updated)
			},
			authorize: func(ctx context.Context, b, old *binding) *field.Error {
				var stored reference
				if old != nil {
					stored = reference{old.Spec.PolicyName, old.Spec.ParamRef}
				}
				return access.checkReference(ctx, reference{b.Spec.PolicyName, b.Spec.ParamRef}, stored, params)
			},
		},
		Table: mutatingBindingTable,
	}, getter)
}
