// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheme

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
)

func addCore(scheme *runtime.Scheme) error {
	addDefaults(scheme, &corev1.Namespace{}, &corev1.NamespaceList{}, setNamespaceDefaults)
	addDefaults(scheme, &corev1.Secret{}, &corev1.SecretList{}, setSecretDefaults)
	return errors.Join(corev1.AddToScheme(scheme), addCoreFieldLabels(scheme))
}

// setNamespaceDefaults sets the phase and the name label. With a generated name the label
// is set when the namespace is stored.
func setNamespaceDefaults(namespace *corev1.Namespace) {
	if namespace.Status.Phase == "" {
		namespace.Status.Phase = corev1.NamespaceActive
	}
	if namespace.Name == "" {
		return
	}
	if namespace.Labels == nil {
		namespace.Labels = map[string]string{}
	}
	namespace.Labels[corev1.LabelMetadataName] = namespace.Name
}

// setSecretDefaults sets the type and merges the write-only stringData into data, where
// its keys win. Kubernetes does this in the conversion to its internal type; here both
// are one type, and defaulting applies to every decoded object.
func setSecretDefaults(secret *corev1.Secret) {
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

// coreFieldLabels are the field selectors in addition to name and namespace.
var coreFieldLabels = map[string]sets.Set[string]{
	"Namespace": sets.New("metadata.name", "status.phase"),
	"Secret":    sets.New("metadata.name", "metadata.namespace", "type"),
	"Event": sets.New(
		"metadata.name", "metadata.namespace",
		"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
		"involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
		"reason", "reportingComponent", "source", "type",
	),
}

func addCoreFieldLabels(scheme *runtime.Scheme) error {
	var errs []error
	for kind, labels := range coreFieldLabels {
		errs = append(errs, scheme.AddFieldLabelConversionFunc(corev1.SchemeGroupVersion.WithKind(kind),
			func(label, value string) (string, string, error) {
				if !labels.Has(label) {
					return "", "", fmt.Errorf("field label not supported: %s", label)
				}
				return label, value, nil
			}))
	}
	return errors.Join(errs...)
}
