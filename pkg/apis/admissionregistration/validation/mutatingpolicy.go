// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var patchTypes = sets.New(admissionregistrationv1.PatchTypeApplyConfiguration, admissionregistrationv1.PatchTypeJSONPatch)

func mutatingPolicy(p *admissionregistrationv1.MutatingAdmissionPolicy) policy {
	return policy{p.Spec.FailurePolicy, p.Spec.ParamKind, p.Spec.MatchConstraints, p.Spec.MatchConditions, p.Spec.Variables}
}

func mutatingExpressions(p *admissionregistrationv1.MutatingAdmissionPolicy) expressions {
	stored := expressions{}
	stored.addConditions(p.Spec.MatchConditions)
	stored.addVariables(p.Spec.Variables)
	for _, mutation := range p.Spec.Mutations {
		if mutation.ApplyConfiguration != nil {
			stored.add(applyConfiguration, mutation.ApplyConfiguration.Expression)
		}
		if mutation.JSONPatch != nil {
			stored.add(jsonPatch, mutation.JSONPatch.Expression)
		}
	}
	return stored
}

// ValidateMutatingAdmissionPolicy checks a new policy.
func ValidateMutatingAdmissionPolicy(p *admissionregistrationv1.MutatingAdmissionPolicy) field.ErrorList {
	return validateMutatingPolicy(p, nil, nil)
}

// ValidateMutatingAdmissionPolicyUpdate checks an update.
func ValidateMutatingAdmissionPolicyUpdate(updated, old *admissionregistrationv1.MutatingAdmissionPolicy) field.ErrorList {
	stored := mutatingPolicy(old)
	return validateMutatingPolicy(updated, &stored, mutatingExpressions(old))
}

func validateMutatingPolicy(p *admissionregistrationv1.MutatingAdmissionPolicy, stored *policy, known expressions) field.ErrorList {
	errs := validateObjectMeta(&p.ObjectMeta)
	c, err := newChecker(true, p.Spec.ParamKind != nil, known)
	if err != nil {
		return append(errs, field.InternalError(specPath, err))
	}
	errs = append(errs, validatePolicy(mutatingPolicy(p), stored, c)...)
	errs = append(errs, validateMutable(p.Spec.MatchConstraints, specPath.Child("matchConstraints"))...)
	mutationsPath := specPath.Child("mutations")
	if len(p.Spec.Mutations) == 0 {
		errs = append(errs, field.Required(mutationsPath, "mutations must contain at least one item"))
	}
	for i := range p.Spec.Mutations {
		errs = append(errs, c.checkMutation(&p.Spec.Mutations[i], mutationsPath.Index(i))...)
	}
	reinvocationPath := specPath.Child("reinvocationPolicy")
	if p.Spec.ReinvocationPolicy == "" {
		return append(errs, field.Required(reinvocationPath, ""))
	}
	return append(errs, validateOneOf(&p.Spec.ReinvocationPolicy, reinvocationPolicies, reinvocationPath)...)
}

func (c checker) checkMutation(mutation *admissionregistrationv1.Mutation, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	applyPath, patchPath := path.Child("applyConfiguration"), path.Child("jsonPatch")
	switch mutation.PatchType {
	case "":
		return field.ErrorList{field.Required(path.Child("patchType"), "")}
	case admissionregistrationv1.PatchTypeApplyConfiguration:
		if mutation.ApplyConfiguration == nil {
			errs = append(errs, field.Required(applyPath, "must be specified when patchType is ApplyConfiguration"))
		} else {
			errs = append(errs, c.check(applyConfiguration, mutation.ApplyConfiguration.Expression, applyPath.Child("expression"))...)
		}
		if mutation.JSONPatch != nil {
			errs = append(errs, field.Invalid(patchPath, "{jsonPatch}", "must not be specified when patchType is ApplyConfiguration"))
		}
	case admissionregistrationv1.PatchTypeJSONPatch:
		if mutation.JSONPatch == nil {
			errs = append(errs, field.Required(patchPath, "must be specified when patchType is JSONPatch"))
		} else {
			errs = append(errs, c.check(jsonPatch, mutation.JSONPatch.Expression, patchPath.Child("expression"))...)
		}
		if mutation.ApplyConfiguration != nil {
			errs = append(errs, field.Invalid(applyPath, "{applyConfiguration}", "must not be specified when patchType is JSONPatch"))
		}
	default:
		return validateOneOf(&mutation.PatchType, patchTypes, path.Child("patchType"))
	}
	return errs
}
