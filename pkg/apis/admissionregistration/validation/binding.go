// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

var (
	validationActions = sets.New(admissionregistrationv1.Deny, admissionregistrationv1.Warn, admissionregistrationv1.Audit)
	notFoundActions   = []admissionregistrationv1.ParameterNotFoundActionType{admissionregistrationv1.DenyAction, admissionregistrationv1.AllowAction}
)

// ValidateValidatingAdmissionPolicyBinding checks a binding, new or updated.
func ValidateValidatingAdmissionPolicyBinding(binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	errs := validateObjectMeta(&binding.ObjectMeta)
	errs = append(errs, validateBinding(binding.Spec.PolicyName, binding.Spec.ParamRef, binding.Spec.MatchResources)...)
	return append(errs, validateActions(binding.Spec.ValidationActions, specPath.Child("validationActions"))...)
}

// ValidateMutatingAdmissionPolicyBinding checks a binding, new or updated.
func ValidateMutatingAdmissionPolicyBinding(binding *admissionregistrationv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	errs := validateObjectMeta(&binding.ObjectMeta)
	errs = append(errs, validateBinding(binding.Spec.PolicyName, binding.Spec.ParamRef, binding.Spec.MatchResources)...)
	return append(errs, validateMutable(binding.Spec.MatchResources, specPath.Child("matchResources"))...)
}

func validateBinding(policyName string, params *admissionregistrationv1.ParamRef, match *admissionregistrationv1.MatchResources) field.ErrorList {
	errs := metavalidation.ValidateRequiredName(policyName, apivalidation.NameIsDNSSubdomain, specPath.Child("policyName"))
	if params != nil {
		errs = append(errs, validateParamRef(params, specPath.Child("paramRef"))...)
	}
	return append(errs, validateMatchResources(match, specPath.Child("matchResources"))...)
}

func validateParamRef(ref *admissionregistrationv1.ParamRef, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	const exclusive = "name and selector are mutually exclusive"
	if ref.Name != "" {
		errs = append(errs, metavalidation.Invalid(path.Child("name"), ref.Name, content.IsPathSegmentName(ref.Name))...)
	}
	if ref.Selector != nil {
		errs = append(errs, metav1validation.ValidateLabelSelector(ref.Selector, metav1validation.LabelSelectorValidationOptions{}, path.Child("selector"))...)
	}
	switch {
	case ref.Name != "" && ref.Selector != nil:
		errs = append(errs, field.Forbidden(path.Child("name"), exclusive), field.Forbidden(path.Child("selector"), exclusive))
	case ref.Name == "" && ref.Selector == nil:
		errs = append(errs, field.Required(path, "one of name or selector must be specified"))
	}
	switch action := ptr.Deref(ref.ParameterNotFoundAction, ""); {
	case action == "":
		errs = append(errs, field.Required(path.Child("parameterNotFoundAction"), ""))
	case !slices.Contains(notFoundActions, action):
		errs = append(errs, field.NotSupported(path.Child("parameterNotFoundAction"), action, notFoundActions))
	}
	return errs
}

func validateActions(actions []admissionregistrationv1.ValidationAction, path *field.Path) field.ErrorList {
	if len(actions) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	seen := sets.New[admissionregistrationv1.ValidationAction]()
	for i, action := range actions {
		errs = append(errs, validateOneOf(&action, validationActions, path.Index(i))...)
		if seen.Has(action) {
			errs = append(errs, field.Duplicate(path.Index(i), action))
		}
		seen.Insert(action)
	}
	if seen.HasAll(admissionregistrationv1.Deny, admissionregistrationv1.Warn) {
		errs = append(errs, field.Invalid(path, actions,
			"must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"))
	}
	return errs
}
