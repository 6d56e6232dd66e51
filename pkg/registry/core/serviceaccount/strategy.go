// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serviceaccount is the REST storage of service accounts.
package serviceaccount

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/annex-dev/annex/pkg/apis/core/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

type strategy struct {
	typed.BaseStrategy
}

func (strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	keepSecretNames(obj.(*corev1.ServiceAccount))
}

func (strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return validation.ValidateServiceAccount(obj.(*corev1.ServiceAccount))
}

func (strategy) PrepareForUpdate(_ context.Context, obj, _ runtime.Object) {
	keepSecretNames(obj.(*corev1.ServiceAccount))
}

func (strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateServiceAccountUpdate(obj.(*corev1.ServiceAccount), old.(*corev1.ServiceAccount))
}

// keepSecretNames cuts references to what they can mean: a secret by its name,
// in the same namespace.
func keepSecretNames(serviceAccount *corev1.ServiceAccount) {
	for i, reference := range serviceAccount.Secrets {
		serviceAccount.Secrets[i] = corev1.ObjectReference{Name: reference.Name}
	}
}
