// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// HostedResourceStoreNameField is the field label that selects HostedResources by Store.
const HostedResourceStoreNameField = "spec.storeName"

// addFieldLabelConversions registers the selectable fields.
func addFieldLabelConversions(scheme *runtime.Scheme) error {
	return scheme.AddFieldLabelConversionFunc(SchemeGroupVersion.WithKind("HostedResource"), convertHostedResourceFieldLabel)
}

func convertHostedResourceFieldLabel(label, value string) (internalLabel, internalValue string, err error) {
	switch label {
	case "metadata.name", HostedResourceStoreNameField:
		return label, value, nil
	default:
		return "", "", fmt.Errorf("%q is not a field that hostedresources can be selected by: use metadata.name or %s", label, HostedResourceStoreNameField)
	}
}
