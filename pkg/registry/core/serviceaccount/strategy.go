// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serviceaccount is the REST storage of service accounts.
package serviceaccount

import (
	"context"
	"fmt"

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

// keepSecretNames cuts references to what they can mean: a secret by its name,
// in the same namespace.
func keepSecretNames(serviceAccount *corev1.ServiceAccount) {
	for i, reference := range serviceAccount.Secrets {
		serviceAccount.Secrets[i] = corev1.ObjectReference{Name: reference.Name}
	}
}
