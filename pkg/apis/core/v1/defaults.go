// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1 has the defaults and field selectors of core/v1.
package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/annex-dev/annex/pkg/apis/meta/defaults"
)

var schemeBuilder = runtime.NewSchemeBuilder(corev1.AddToScheme, addDefaults, addFieldLabels)

// AddToScheme adds the types, their defaults and their field labels to a scheme.
var AddToScheme = schemeBuilder.AddToScheme

func addDefaults(scheme *runtime.Scheme) error {
	defaults.Add(scheme, &corev1.Namespace{}, &corev1.NamespaceList{}, SetDefaultsNamespace)
	defaults.Add(scheme, &corev1.Secret{}, &corev1.SecretList{}, SetDefaultsSecret)
	return nil
}

// SetDefaultsNamespace sets the phase and the name label. With a generated name the label
// is set when the namespace is stored.
func SetDefaultsNamespace(namespace *corev1.Namespace) {
	if namespace.Status.Phase == "" {
		namespace.Status.Phase = corev1.NamespaceActive
	}
	if namespace.Name != "" {
		SetNameLabel(namespace)
	}
}

// SetNameLabel sets the label kubernetes.io/metadata.name.
func SetNameLabel(namespace *corev1.Namespace) {
	if namespace.Labels == nil {
		namespace.Labels = map[string]string{}
	}
	namespace.Labels[corev1.LabelMetadataName] = namespace.Name
}

// SetDefaultsSecret sets the type and merges the write-only stringData into data, where
// its keys win. Kubernetes does this in the conversion to its internal type; here both
// are one type, and defaulting applies to every decoded object.
func SetDefaultsSecret(secret *corev1.Secret) {
	if secret.Type == "" {
		secret.Type = corev1.SecretTypeOpaque
	}
	if secret.Data == nil && len(secret.StringData) > 0 {
		secret.Data = make(map[string][]byte, len(secret.StringData))
	}
	for key, value := range secret.StringData {
		secret.Data[key] = []byte(value)
	}
	secret.StringData = nil
}
