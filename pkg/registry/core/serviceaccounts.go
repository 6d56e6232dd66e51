// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/annex-dev/annex/pkg/apis/core/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/table"
)

var serviceAccounts = typed.Resource{
	Kind:                corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	ShortNames:          []string{"sa"},
	Strategy:            serviceAccountStrategy{typed.Validated(typed.Namespaced, validation.ValidateServiceAccount, nil)},
	Table:               table.New(corev1.Resource("serviceaccounts"), table.Name[*corev1.ServiceAccount](), table.Age[*corev1.ServiceAccount]()),
	ReturnDeletedObject: true,
}

type serviceAccountStrategy struct {
	typed.ValidatedStrategy[*corev1.ServiceAccount]
}

func (serviceAccountStrategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	keepSecretNames(obj)
}

func (serviceAccountStrategy) PrepareForUpdate(_ context.Context, obj, _ runtime.Object) {
	keepSecretNames(obj)
}

// keepSecretNames removes everything except the name from references to Secrets, which are in
// the same namespace.
func keepSecretNames(obj runtime.Object) {
	secrets := obj.(*corev1.ServiceAccount).Secrets
	for i, reference := range secrets {
		secrets[i] = corev1.ObjectReference{Name: reference.Name}
	}
}

// WarningsOnCreate warns of an annotation that Kubernetes has deprecated.
func (serviceAccountStrategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	const annotation = "kubernetes.io/enforce-mountable-secrets"
	if _, ok := obj.(*corev1.ServiceAccount).Annotations[annotation]; !ok {
		return nil
	}
	return []string{fmt.Sprintf("metadata.annotations[%s]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets", annotation)}
}

func (s serviceAccountStrategy) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	if len(s.WarningsOnCreate(ctx, old)) > 0 {
		return nil
	}
	return s.WarningsOnCreate(ctx, obj)
}
