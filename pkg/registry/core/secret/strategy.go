// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package secret is the REST storage of secrets.
package secret

import (
	"context"
	"crypto/tls"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/annex-dev/annex/pkg/apis/core/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

type strategy struct {
	typed.BaseStrategy
}

func (strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return validation.ValidateSecret(obj.(*corev1.Secret))
}

func (strategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	return warnings(obj.(*corev1.Secret))
}

func (strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateSecretUpdate(obj.(*corev1.Secret), old.(*corev1.Secret))
}

func (strategy) WarningsOnUpdate(_ context.Context, obj, _ runtime.Object) []string {
	return warnings(obj.(*corev1.Secret))
}

// warnings tells about a TLS secret that no server could use.
func warnings(secret *corev1.Secret) []string {
	if secret.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// attrs returns what selectors see of a secret.
func attrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return nil, nil, fmt.Errorf("selecting secrets: unexpected type %T", obj)
	}
	selectable := generic.AddObjectMetaFieldsSet(fields.Set{"type": string(secret.Type)}, &secret.ObjectMeta, true)
	return secret.Labels, selectable, nil
}
