// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

var namespaceFinalizersPath = field.NewPath("spec", "finalizers")

// ValidateNamespace validates a Namespace.
func ValidateNamespace(namespace *corev1.Namespace) field.ErrorList {
	errs := metavalidation.ValidateObjectMeta(&namespace.ObjectMeta, false, apivalidation.ValidateNamespaceName)
	for _, finalizer := range namespace.Spec.Finalizers {
		errs = append(errs, validateNamespaceFinalizer(finalizer, namespaceFinalizersPath)...)
	}
	return errs
}

// ValidateNamespaceStatusUpdate checks that the phase matches the deletion timestamp.
func ValidateNamespaceStatusUpdate(namespace *corev1.Namespace) field.ErrorList {
	errs := metavalidation.ValidateFinalizers(&namespace.ObjectMeta)
	phase, path := namespace.Status.Phase, field.NewPath("status", "Phase")
	switch deleted := !namespace.DeletionTimestamp.IsZero(); {
	case !deleted && phase != corev1.NamespaceActive:
		errs = append(errs, field.Invalid(path, phase, "may only be 'Active' if `deletionTimestamp` is empty"))
	case deleted && phase != corev1.NamespaceTerminating:
		errs = append(errs, field.Invalid(path, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty"))
	}
	return errs
}

// ValidateNamespaceFinalizeUpdate checks an update of spec.finalizers.
func ValidateNamespaceFinalizeUpdate(namespace *corev1.Namespace) field.ErrorList {
	errs := metavalidation.ValidateFinalizers(&namespace.ObjectMeta)
	for i, finalizer := range namespace.Spec.Finalizers {
		errs = append(errs, validateNamespaceFinalizer(finalizer, namespaceFinalizersPath.Index(i))...)
	}
	return errs
}

func validateNamespaceFinalizer(finalizer corev1.FinalizerName, path *field.Path) field.ErrorList {
	errs := apivalidation.ValidateFinalizerName(string(finalizer), path)
	return append(errs, metavalidation.ValidateFinalizerQualified(string(finalizer), path)...)
}
