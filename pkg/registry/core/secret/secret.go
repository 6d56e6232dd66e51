// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package secret is the REST storage of Secrets.
package secret

import (
	"context"
	"crypto/tls"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/annex-dev/annex/pkg/apis/core/validation"
	"github.com/annex-dev/annex/pkg/registry/table"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// Resource describes Secrets.
func Resource(typer runtime.ObjectTyper) typed.Resource {
	return typed.Resource{
		Kind:     corev1.SchemeGroupVersion.WithKind("Secret"),
		Strategy: newStrategy(typer),
		Attrs:    attrs,
		Table:    tableConvertor,
	}
}

var tableConvertor = table.New(corev1.Resource("secrets"),
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
)

type strategy struct {
	typed.ValidatedStrategy[*corev1.Secret]
}

func newStrategy(typer runtime.ObjectTyper) strategy {
	return strategy{typed.Validated(typed.Namespaced(typer), validation.ValidateSecret, validation.ValidateSecretUpdate)}
}

func (strategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	return warnings(obj.(*corev1.Secret))
}

func (strategy) WarningsOnUpdate(_ context.Context, obj, _ runtime.Object) []string {
	return warnings(obj.(*corev1.Secret))
}

// warnings reports a TLS Secret that no server could use.
func warnings(secret *corev1.Secret) []string {
	if secret.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// attrs returns what selectors match.
func attrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return nil, nil, fmt.Errorf("select secrets: unexpected type %T", obj)
	}
	selectable := generic.AddObjectMetaFieldsSet(fields.Set{"type": string(secret.Type)}, &secret.ObjectMeta, true)
	return secret.Labels, selectable, nil
}
