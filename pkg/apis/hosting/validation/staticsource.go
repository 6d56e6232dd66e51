// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// maxStaticProblems bounds the size of a StaticSource.
const maxStaticProblems = 20

// ValidateStaticSource validates a StaticSource, whose spec annex writes.
func ValidateStaticSource(source *hostingv1alpha1.StaticSource) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&source.ObjectMeta, false, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	if names := hostingv1alpha1.StaticSources(); !slices.Contains(names, source.Name) {
		errs = append(errs, field.NotSupported(field.NewPath("metadata", "name"), source.Name, names))
	}
	return errs
}

// ValidateStaticSourceStatusUpdate checks an update of a StaticSource's status.
func ValidateStaticSourceStatusUpdate(newSource, _ *hostingv1alpha1.StaticSource) field.ErrorList {
	status, path := &newSource.Status, field.NewPath("status")
	errs := metav1validation.ValidateConditions(status.Conditions, path.Child("conditions"))
	errs = append(errs, apivalidation.ValidateNonnegativeField(status.Objects, path.Child("objects"))...)
	errs = append(errs, apivalidation.ValidateNonnegativeField(status.Applied, path.Child("applied"))...)
	errs = append(errs, apivalidation.ValidateNonnegativeField(status.Orphaned, path.Child("orphaned"))...)
	if len(status.Problems) > maxStaticProblems {
		errs = append(errs, field.TooMany(path.Child("problems"), len(status.Problems), maxStaticProblems))
	}
	return errs
}
