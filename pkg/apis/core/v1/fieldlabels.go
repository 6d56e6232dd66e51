// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
)

// fieldLabels are the field selectors in addition to name and namespace.
var fieldLabels = map[string]sets.Set[string]{
	"Namespace": sets.New("metadata.name", "status.phase"),
	"Secret":    sets.New("metadata.name", "metadata.namespace", "type"),
	"Event": sets.New(
		"metadata.name", "metadata.namespace",
		"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
		"involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
		"reason", "reportingComponent", "source", "type",
	),
}

func addFieldLabels(scheme *runtime.Scheme) error {
	var errs []error
	for kind, labels := range fieldLabels {
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
