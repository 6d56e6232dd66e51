// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serviceaccount is the REST storage of ServiceAccounts and of their tokens.
package serviceaccount

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/annex-dev/annex/pkg/apis/core/validation"
	"github.com/annex-dev/annex/pkg/registry/table"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// NewStorage returns the endpoint of ServiceAccounts.
func NewStorage(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter) (*typed.REST, error) {
	return typed.NewREST(typed.Resource{
		Resource:            corev1.Resource("serviceaccounts"),
		Singular:            "serviceaccount",
		ShortNames:          []string{"sa"},
		New:                 func() runtime.Object { return &corev1.ServiceAccount{} },
		NewList:             func() runtime.Object { return &corev1.ServiceAccountList{} },
		Strategy:            newStrategy(typer),
		Table:               tableConvertor,
		ReturnDeletedObject: true,
	}, getter)
}

var tableConvertor = table.New(corev1.Resource("serviceaccounts"),
	table.Name[*corev1.ServiceAccount](),
	table.Age[*corev1.ServiceAccount](),
)

type strategy struct {
	typed.ValidatedStrategy[*corev1.ServiceAccount]
}

func newStrategy(typer runtime.ObjectTyper) strategy {
	return strategy{typed.ValidatedStrategy[*corev1.ServiceAccount]{
		BaseStrategy:       typed.Namespaced(typer),
		ValidateFunc:       validation.ValidateServiceAccount,
		ValidateUpdateFunc: validation.ValidateServiceAccountUpdate,
	}}
}

func (strategy) PrepareForCreate(_ context.Context, obj runtime.Object) { keepSecretNames(obj) }

func (strategy) PrepareForUpdate(_ context.Context, obj, _ runtime.Object) { keepSecretNames(obj) }

// keepSecretNames drops everything but the name from references to Secrets, which are in
// the same namespace.
func keepSecretNames(obj runtime.Object) {
	secrets := obj.(*corev1.ServiceAccount).Secrets
	for i, reference := range secrets {
		secrets[i] = corev1.ObjectReference{Name: reference.Name}
	}
}
