// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serviceaccount is the REST storage of ServiceAccounts and of their tokens.
package serviceaccount

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/annex-dev/annex/pkg/apis/core/validation"
	"github.com/annex-dev/annex/pkg/registry/table"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// Resource describes ServiceAccounts.
func Resource(typer runtime.ObjectTyper) typed.Resource {
	return typed.Resource{
		Kind:                corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
		ShortNames:          []string{"sa"},
		Strategy:            newStrategy(typer),
		Table:               tableConvertor,
		ReturnDeletedObject: true,
	}
}

var tableConvertor = table.New(corev1.Resource("serviceaccounts"),
	table.Name[*corev1.ServiceAccount](),
	table.Age[*corev1.ServiceAccount](),
)

type strategy struct {
	typed.ValidatedStrategy[*corev1.ServiceAccount]
}

func newStrategy(typer runtime.ObjectTyper) strategy {
	return strategy{typed.Validated(typed.Namespaced(typer), validation.ValidateServiceAccount, validation.ValidateServiceAccountUpdate)}
}

func (strategy) PrepareForCreate(_ context.Context, obj runtime.Object) { keepSecretNames(obj) }

func (strategy) PrepareForUpdate(_ context.Context, obj, _ runtime.Object) { keepSecretNames(obj) }

func (strategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	return deprecations(obj.(*corev1.ServiceAccount))
}

func (strategy) WarningsOnUpdate(_ context.Context, obj, old runtime.Object) []string {
	if len(deprecations(old.(*corev1.ServiceAccount))) > 0 {
		return nil
	}
	return deprecations(obj.(*corev1.ServiceAccount))
}

// deprecations returns the warnings about an annotation that Kubernetes has deprecated.
func deprecations(serviceAccount *corev1.ServiceAccount) []string {
	const annotation = "kubernetes.io/enforce-mountable-secrets"
	if _, ok := serviceAccount.Annotations[annotation]; !ok {
		return nil
	}
	return []string{fmt.Sprintf("metadata.annotations[%s]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets", annotation)}
}

// keepSecretNames drops everything but the name from references to Secrets, which are in
// the same namespace.
func keepSecretNames(obj runtime.Object) {
	secrets := obj.(*corev1.ServiceAccount).Secrets
	for i, reference := range secrets {
		secrets[i] = corev1.ObjectReference{Name: reference.Name}
	}
}
