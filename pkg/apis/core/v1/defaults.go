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

// SetDefaultsNamespace sets the phase and the label that lets selectors name a
// namespace. A namespace that awaits a generated name gets the label when it is
// stored.
func SetDefaultsNamespace(namespace *corev1.Namespace) {
	if namespace.Status.Phase == "" {
		namespace.Status.Phase = corev1.NamespaceActive
	}
	if namespace.Name != "" {
		SetNameLabel(namespace)
	}
}

// SetNameLabel makes the label kubernetes.io/metadata.name say the truth.
func SetNameLabel(namespace *corev1.Namespace) {
	if namespace.Labels == nil {
		namespace.Labels = map[string]string{}
	}
	namespace.Labels[corev1.LabelMetadataName] = namespace.Name
}

// SetDefaultsSecret sets the type and folds the write-only stringData into data,
// where its keys win. Kubernetes folds while it converts to its hub type; with
// one type for both there is no conversion, and defaulting is the step that every
// decoded object goes through: a request body, a patch, an apply.
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
