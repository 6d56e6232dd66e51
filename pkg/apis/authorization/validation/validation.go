// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation checks questions about who may do what.
package validation

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var specPath = field.NewPath("spec")

// ValidateSubjectAccessReview checks a question about anybody.
func ValidateSubjectAccessReview(review *authorizationv1.SubjectAccessReview) field.ErrorList {
	return append(validateSubject(&review.Spec), validateMeta(review.ObjectMeta, "must be empty: a review is not kept")...)
}

// ValidateSelfSubjectAccessReview checks a question of a caller about themself.
func ValidateSelfSubjectAccessReview(review *authorizationv1.SelfSubjectAccessReview) field.ErrorList {
	return append(validateAction(review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes),
		validateMeta(review.ObjectMeta, "must be empty: a review is not kept")...)
}

// ValidateLocalSubjectAccessReview checks a question about anybody in one namespace.
func ValidateLocalSubjectAccessReview(review *authorizationv1.LocalSubjectAccessReview) field.ErrorList {
	errs := validateSubject(&review.Spec)
	meta := review.ObjectMeta
	meta.Namespace = ""
	errs = append(errs, validateMeta(meta, "must be empty except for namespace: a review is not kept")...)
	if action := review.Spec.ResourceAttributes; action != nil && action.Namespace != review.Namespace {
		errs = append(errs, field.Invalid(specPath.Child("resourceAttributes", "namespace"), action.Namespace, "must be the same as metadata.namespace"))
	}
	if review.Spec.NonResourceAttributes != nil {
		errs = append(errs, field.Forbidden(specPath.Child("nonResourceAttributes"), "paths are in no namespace: use a SubjectAccessReview"))
	}
	return errs
}

// ValidateSelfSubjectRulesReview checks a question of a caller about all they may do.
func ValidateSelfSubjectRulesReview(review *authorizationv1.SelfSubjectRulesReview) field.ErrorList {
	var errs field.ErrorList
	if review.Spec.Namespace == "" {
		errs = append(errs, field.Required(specPath.Child("namespace"), "rights differ from namespace to namespace"))
	}
	return errs
}

func validateMeta(meta metav1.ObjectMeta, why string) field.ErrorList {
	// Server-side apply and client libraries may leave these behind.
	meta.ManagedFields = nil
	if equality.Semantic.DeepEqual(meta, metav1.ObjectMeta{}) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), meta, why)}
}

func validateSubject(spec *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := validateAction(spec.ResourceAttributes, spec.NonResourceAttributes)
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs, field.Required(specPath.Child("user"), "at least one of user and groups must be set"))
	}
	return errs
}

// validateAction checks that a question is about a resource or about a path.
func validateAction(resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) field.ErrorList {
	const both = "exactly one of resourceAttributes and nonResourceAttributes must be set"
	switch {
	case resource != nil && path != nil:
		return field.ErrorList{field.Invalid(specPath.Child("nonResourceAttributes"), path, both)}
	case resource == nil && path == nil:
		return field.ErrorList{field.Required(specPath.Child("resourceAttributes"), both)}
	case resource == nil:
		return nil
	}
	resourcePath := specPath.Child("resourceAttributes")
	return append(validateFieldSelector(resource.FieldSelector, resourcePath.Child("fieldSelector")),
		validateLabelSelector(resource.LabelSelector, resourcePath.Child("labelSelector"))...)
}

func validateFieldSelector(selector *authorizationv1.FieldSelectorAttributes, fldPath *field.Path) field.ErrorList {
	if selector == nil {
		return nil
	}
	errs := validateForm(selector.RawSelector, len(selector.Requirements), fldPath)
	// An operator of a newer client is ignored, which only makes the question broader.
	options := metav1validation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
	for i, requirement := range selector.Requirements {
		errs = append(errs, metav1validation.ValidateFieldSelectorRequirement(requirement, options, fldPath.Child("requirements").Index(i))...)
	}
	return errs
}

func validateLabelSelector(selector *authorizationv1.LabelSelectorAttributes, fldPath *field.Path) field.ErrorList {
	if selector == nil {
		return nil
	}
	errs := validateForm(selector.RawSelector, len(selector.Requirements), fldPath)
	options := metav1validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
	for i, requirement := range selector.Requirements {
		errs = append(errs, metav1validation.ValidateLabelSelectorRequirement(requirement, options, fldPath.Child("requirements").Index(i))...)
	}
	return errs
}

// validateForm checks that a selector is given in one of its two forms.
func validateForm(raw string, requirements int, fldPath *field.Path) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(fldPath.Child("rawSelector"), raw, "may not be set together with requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(fldPath.Child("requirements"), "a selector needs requirements or rawSelector")}
	default:
		return nil
	}
}
