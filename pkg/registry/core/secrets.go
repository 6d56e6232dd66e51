// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"crypto/tls"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/annex-dev/annex/pkg/apis/core/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/table"
)

var secrets = typed.Resource{
	Kind:     corev1.SchemeGroupVersion.WithKind("Secret"),
	Strategy: secretStrategy{typed.Validated(typed.Namespaced, validation.ValidateSecret, validation.ValidateSecretUpdate)},
	Attrs:    typed.Fields(func(secret *corev1.Secret) fields.Set { return fields.Set{"type": string(secret.Type)} }),
	Table: table.New(corev1.Resource("secrets"),
		table.Name[*corev1.Secret](),
		table.Column[*corev1.Secret]{
			Name:        "Type",
			Description: corev1.Secret{}.SwaggerDoc()["type"],
			Value:       func(secret *corev1.Secret) any { return string(secret.Type) },
		},
		table.Column[*corev1.Secret]{
			Name:        "Data",
			Type:        "integer",
			Description: corev1.Secret{}.SwaggerDoc()["data"],
			Value:       func(secret *corev1.Secret) any { return int64(len(secret.Data)) },
		},
		table.Age[*corev1.Secret](),
	),
}

type secretStrategy struct {
	typed.ValidatedStrategy[*corev1.Secret]
}

// WarningsOnCreate warns of a TLS Secret that no server could use.
func (secretStrategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	secret := obj.(*corev1.Secret)
	if secret.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}

func (s secretStrategy) WarningsOnUpdate(ctx context.Context, obj, _ runtime.Object) []string {
	return s.WarningsOnCreate(ctx, obj)
}
