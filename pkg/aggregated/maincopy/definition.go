// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"encoding/json"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// conversionAnnotation on a definition in the main cluster is the conversion that it has while
// its copy is not open, as JSON.
const conversionAnnotation = "annex.dev/main-copy-conversion"

// openDescription is in the schema of the version. EndWatches appends to it.
const openDescription = "annex reaches the objects that the main cluster stores through this version. It disappears when annex no longer needs it."

// openDefinition adds the version that reaches the copy, and reports whether it was not there.
func openDefinition(definition *apiextensionsv1.CustomResourceDefinition) (bool, error) {
	changed := false
	if conversion := definition.Spec.Conversion; conversion != nil && conversion.Strategy != apiextensionsv1.NoneConverter {
		encoded, err := json.Marshal(conversion)
		if err != nil {
			return false, fmt.Errorf("encode the conversion of %s: %w", definition.Name, err)
		}
		if definition.Annotations == nil {
			definition.Annotations = map[string]string{}
		}
		definition.Annotations[conversionAnnotation] = string(encoded)
		definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
		changed = true
	}
	if version := versionOf(definition); version == nil {
		definition.Spec.Versions = append(definition.Spec.Versions, newVersion(true))
		changed = true
	} else if !version.Served {
		version.Served, changed = true, true
	}
	return changed, nil
}

// closeDefinition undoes openDefinition. A conversion that was set meanwhile stays.
func closeDefinition(definition *apiextensionsv1.CustomResourceDefinition) error {
	removeVersion(definition)
	encoded, annotated := definition.Annotations[conversionAnnotation]
	if !annotated {
		return nil
	}
	delete(definition.Annotations, conversionAnnotation)
	if current := definition.Spec.Conversion; current != nil && current.Strategy != apiextensionsv1.NoneConverter {
		return nil
	}
	conversion := &apiextensionsv1.CustomResourceConversion{}
	if err := json.Unmarshal([]byte(encoded), conversion); err != nil {
		return fmt.Errorf("decode annotation %s of %s: %w", conversionAnnotation, definition.Name, err)
	}
	definition.Spec.Conversion = conversion
	return nil
}

func removeVersion(definition *apiextensionsv1.CustomResourceDefinition) {
	definition.Spec.Versions = slices.DeleteFunc(definition.Spec.Versions, isOpenVersion)
}

func isOpenVersion(version apiextensionsv1.CustomResourceDefinitionVersion) bool {
	return version.Name == hostingv1alpha1.MainCopyVersion
}

// versionOf returns the version that Open added, nil if there is none.
func versionOf(definition *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinitionVersion {
	if i := slices.IndexFunc(definition.Spec.Versions, isOpenVersion); i >= 0 {
		return &definition.Spec.Versions[i]
	}
	return nil
}

func newVersion(served bool) apiextensionsv1.CustomResourceDefinitionVersion {
	return apiextensionsv1.CustomResourceDefinitionVersion{
		Name:   hostingv1alpha1.MainCopyVersion,
		Served: served,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", Description: openDescription, XPreserveUnknownFields: new(true),
		}},
	}
}
