// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation has what the validation of several groups shares. The generic registry validates
// the update of metadata of all kinds.
package validation

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var standardFinalizers = sets.New(
	string(corev1.FinalizerKubernetes),
	metav1.FinalizerOrphanDependents,
	metav1.FinalizerDeleteDependents,
)

var metadataPath = field.NewPath("metadata")

// ValidateObjectMeta validates metadata of a kind of the groups core, rbac and flowcontrol, whose
// finalizers are qualified.
func ValidateObjectMeta(meta *metav1.ObjectMeta, namespaced bool, name apivalidation.ValidateNameFunc) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(meta, namespaced, name, metadataPath)
	return append(errs, ValidateFinalizers(meta)...)
}

// ValidateFinalizers validates that the finalizers of an object are qualified.
func ValidateFinalizers(meta *metav1.ObjectMeta) field.ErrorList {
	var errs field.ErrorList
	for i, finalizer := range meta.Finalizers {
		errs = append(errs, ValidateFinalizerQualified(finalizer, metadataPath.Child("finalizers").Index(i))...)
	}
	return errs
}

// ValidateFinalizerQualified rejects a finalizer without a domain.
func ValidateFinalizerQualified(finalizer string, path *field.Path) field.ErrorList {
	if strings.Contains(finalizer, "/") || standardFinalizers.Has(finalizer) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, finalizer, "name is neither a standard finalizer name nor is it fully qualified")}
}

// ValidateRequiredName validates the name of an object in a required field.
func ValidateRequiredName(name string, valid apivalidation.ValidateNameFunc, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return Invalid(path, name, valid(name, false))
}

// Invalid returns an error for each message about a value.
func Invalid(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, message := range messages {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}
