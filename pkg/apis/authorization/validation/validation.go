// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation validates the reviews of authorization.k8s.io, with the messages of
// Kubernetes.
package validation

import (
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	specPath     = field.NewPath("spec")
	resourcePath = field.NewPath("spec.resourceAttributes")
)

// ValidateSubjectAccessReview checks a review of any user's access.
func ValidateSubjectAccessReview(review *authorizationv1.SubjectAccessReview) field.ErrorList {
	return append(validateSubject(&review.Spec), validateMeta(review.ObjectMeta, "must be empty")...)
}

// ValidateSelfSubjectAccessReview checks a review of the caller's own access.
func ValidateSelfSubjectAccessReview(review *authorizationv1.SelfSubjectAccessReview) field.ErrorList {
	errs := validateOneAction(review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
	errs = append(errs, validateSelectors(review.Spec.ResourceAttributes)...)
	return append(errs, validateMeta(review.ObjectMeta, "must be empty")...)
}

// ValidateLocalSubjectAccessReview checks a review of any user's access in one namespace.
func ValidateLocalSubjectAccessReview(review *authorizationv1.LocalSubjectAccessReview) field.ErrorList {
	errs := validateSubject(&review.Spec)
	meta := review.ObjectMeta
	meta.Namespace = ""
	errs = append(errs, validateMeta(meta, "must be empty except for namespace")...)
	if action := review.Spec.ResourceAttributes; action != nil && action.Namespace != review.Namespace {
		errs = append(errs, field.Invalid(resourcePath.Child("namespace"), action.Namespace, "must match metadata.namespace"))
	}
	if path := review.Spec.NonResourceAttributes; path != nil {
		errs = append(errs, field.Invalid(specPath.Child("nonResourceAttributes"), path, "disallowed on this kind of request"))
	}
	return errs
}

func validateMeta(meta metav1.ObjectMeta, detail string) field.ErrorList {
	// Set for every request with a body.
	meta.ManagedFields = nil
	if equality.Semantic.DeepEqual(meta, metav1.ObjectMeta{}) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), meta, detail)}
}

func validateSubject(spec *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := validateOneAction(spec.ResourceAttributes, spec.NonResourceAttributes)
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs, field.Invalid(specPath.Child("user"), spec.User, "at least one of user or group must be specified"))
	}
	return append(errs, validateSelectors(spec.ResourceAttributes)...)
}

// validateOneAction checks that a review is about either a resource or a path.
func validateOneAction(resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) field.ErrorList {
	if (resource != nil) == (path != nil) {
		return field.ErrorList{field.Invalid(specPath, path, "exactly one of nonResourceAttributes or resourceAttributes must be specified")}
	}
	return nil
}

// validateSelectors accepts unknown operators of newer clients: without the requirement
// the review is only broader.
func validateSelectors(resource *authorizationv1.ResourceAttributes) field.ErrorList {
	if resource == nil {
		return nil
	}
	var errs field.ErrorList
	if selector, path := resource.FieldSelector, resourcePath.Child("fieldSelector"); selector != nil {
		errs = append(errs, validateForm(selector.RawSelector, len(selector.Requirements), path)...)
		options := metav1validation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
		for i, requirement := range selector.Requirements {
			errs = append(errs, metav1validation.ValidateFieldSelectorRequirement(requirement, options, path.Child("requirements").Index(i))...)
		}
	}
	if selector, path := resource.LabelSelector, resourcePath.Child("labelSelector"); selector != nil {
		errs = append(errs, validateForm(selector.RawSelector, len(selector.Requirements), path)...)
		options := metav1validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
		for i, requirement := range selector.Requirements {
			errs = append(errs, metav1validation.ValidateLabelSelectorRequirement(requirement, options, path.Child("requirements").Index(i))...)
		}
	}
	return errs
}

// validateForm checks that a selector has one of its two forms.
func validateForm(raw string, requirements int, path *field.Path) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(path.Child("rawSelector"), raw, "may not specified at the same time as requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(path.Child("requirements"), fmt.Sprintf("when %s is specified, requirements or rawSelector is required", path))}
	}
	return nil
}
