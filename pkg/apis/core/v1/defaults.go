// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func addDefaults(scheme *runtime.Scheme) error {
	scheme.AddTypeDefaultingFunc(&corev1.Namespace{}, func(obj any) { SetDefaultsNamespace(obj.(*corev1.Namespace)) })
	scheme.AddTypeDefaultingFunc(&corev1.NamespaceList{}, func(obj any) {
		for i := range obj.(*corev1.NamespaceList).Items {
			SetDefaultsNamespace(&obj.(*corev1.NamespaceList).Items[i])
		}
	})
	scheme.AddTypeDefaultingFunc(&corev1.Secret{}, func(obj any) { SetDefaultsSecret(obj.(*corev1.Secret)) })
	scheme.AddTypeDefaultingFunc(&corev1.SecretList{}, func(obj any) {
		for i := range obj.(*corev1.SecretList).Items {
			SetDefaultsSecret(&obj.(*corev1.SecretList).Items[i])
		}
	})
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
