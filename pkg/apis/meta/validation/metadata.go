// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation validates metadata of kinds with qualified finalizers: those of the
// groups core, rbac and flowcontrol.
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

// ValidateObjectMeta checks metadata and that its finalizers are qualified.
func ValidateObjectMeta(meta *metav1.ObjectMeta, namespaced bool, name apivalidation.ValidateNameFunc) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(meta, namespaced, name, metadataPath)
	return append(errs, validateFinalizersQualified(meta)...)
}

// ValidateObjectMetaUpdate checks an update of metadata in the same way.
func ValidateObjectMetaUpdate(newMeta, oldMeta *metav1.ObjectMeta) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaUpdate(newMeta, oldMeta, metadataPath)
	return append(errs, validateFinalizersQualified(newMeta)...)
}

func validateFinalizersQualified(meta *metav1.ObjectMeta) field.ErrorList {
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
