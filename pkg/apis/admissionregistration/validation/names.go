// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	metadataPath = field.NewPath("metadata")
	specPath     = field.NewPath("spec")
)

// staticSuffix is the suffix of names of objects that plugins read from files.
const staticSuffix = ".static.k8s.io"

// ValidateNewName rejects names reserved for objects that plugins read from files.
func ValidateNewName(name string) field.ErrorList {
	if !strings.HasSuffix(name, staticSuffix) {
		return nil
	}
	return field.ErrorList{field.Invalid(metadataPath.Child("name"), name,
		fmt.Sprintf("names ending with %q are reserved for static manifest-based configurations and cannot be managed via the API", staticSuffix))}
}

func validateObjectMeta(meta *metav1.ObjectMeta) field.ErrorList {
	return apivalidation.ValidateObjectMeta(meta, false, apivalidation.NameIsDNSSubdomain, metadataPath)
}

// validateOneOf rejects an unsupported value, unless it is unset.
func validateOneOf[T ~string](value *T, supported sets.Set[T], path *field.Path) field.ErrorList {
	if value == nil || supported.Has(*value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, *value, sets.List(supported))}
}

// validateRequired is validateOneOf for a required value.
func validateRequired[T ~string](value *T, supported sets.Set[T], path *field.Path) field.ErrorList {
	if value == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	return validateOneOf(value, supported, path)
}
