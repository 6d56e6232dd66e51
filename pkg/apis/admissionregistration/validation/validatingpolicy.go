// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/jsonpath"

	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

const (
	maxAuditAnnotations = 20
	// maxValueExpressionLength is half of the maximum of an annotation: an expression can
	// return more than its own length.
	maxValueExpressionLength = 5 * 1024
)

// reasons are the supported reasons of a rejection.
var reasons = sets.New(metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge)

func validatingPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy) policy {
	return policy{p.Spec.FailurePolicy, p.Spec.ParamKind, p.Spec.MatchConstraints, p.Spec.MatchConditions, p.Spec.Variables}
}

func validatingExpressions(p *admissionregistrationv1.ValidatingAdmissionPolicy) expressions {
	stored := expressions{}
	stored.addConditions(p.Spec.MatchConditions)
	stored.addVariables(p.Spec.Variables)
	for _, v := range p.Spec.Validations {
		stored.add(validationCondition, v.Expression)
		stored.add(message, v.MessageExpression)
	}
	for _, annotation := range p.Spec.AuditAnnotations {
		stored.add(auditAnnotation, annotation.ValueExpression)
	}
	return stored
}

// ValidateValidatingAdmissionPolicy checks a new policy.
func ValidateValidatingAdmissionPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	return validateValidatingPolicy(p, nil, nil)
}

// ValidateValidatingAdmissionPolicyUpdate checks an update.
func ValidateValidatingAdmissionPolicyUpdate(updated, old *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	stored := validatingPolicy(old)
	return validateValidatingPolicy(updated, &stored, validatingExpressions(old))
}

func validateValidatingPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy, stored *policy, known expressions) field.ErrorList {
	errs := validateObjectMeta(&p.ObjectMeta)
	c, err := newChecker(len(p.Spec.Variables) > 0, p.Spec.ParamKind != nil, known)
	if err != nil {
		return append(errs, field.InternalError(specPath, err))
	}
	errs = append(errs, validatePolicy(validatingPolicy(p), stored, c)...)
	validationsPath, annotationsPath := specPath.Child("validations"), specPath.Child("auditAnnotations")
	if len(p.Spec.Validations) == 0 && len(p.Spec.AuditAnnotations) == 0 {
		const detail = "validations or auditAnnotations must contain at least one item"
		return append(errs, field.Required(validationsPath, detail), field.Required(annotationsPath, detail))
	}
	for i := range p.Spec.Validations {
		errs = append(errs, c.checkValidation(&p.Spec.Validations[i], validationsPath.Index(i))...)
	}
	return append(errs, c.checkAuditAnnotations(p.Name, p.Spec.AuditAnnotations, annotationsPath)...)
}

func (c checker) checkValidation(v *admissionregistrationv1.Validation, path *field.Path) field.ErrorList {
	errs := c.check(validationCondition, v.Expression, path.Child("expression"))
	switch {
	case v.MessageExpression == "":
	case strings.TrimSpace(v.MessageExpression) == "":
		errs = append(errs, field.Invalid(path.Child("messageExpression"), v.MessageExpression, "must be non-empty if specified"))
	default:
		errs = append(errs, c.check(message, v.MessageExpression, path.Child("messageExpression"))...)
	}
	trimmed := strings.TrimSpace(v.Message)
	switch {
	case v.Message != "" && trimmed == "":
		errs = append(errs, field.Invalid(path.Child("message"), v.Message, "must be non-empty if specified"))
	case strings.ContainsAny(trimmed, "\n\r"):
		errs = append(errs, field.Invalid(path.Child("message"), v.Message, "must not contain line breaks"))
	}
	return append(errs, validateOneOf(v.Reason, reasons, path.Child("reason"))...)
}

func (c checker) checkAuditAnnotations(policyName string, annotations []admissionregistrationv1.AuditAnnotation, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(annotations) > maxAuditAnnotations {
		errs = append(errs, field.Invalid(path, annotations, fmt.Sprintf("must not have more than %d auditAnnotations", maxAuditAnnotations)))
	}
	seen := sets.New[string]()
	for i, annotation := range annotations {
		keyPath, valuePath := path.Index(i).Child("key"), path.Index(i).Child("valueExpression")
		if policyName == "" {
			errs = append(errs, field.Invalid(keyPath, annotation.Key, "requires metadata.name be non-empty"))
		} else {
			errs = append(errs, metavalidation.Invalid(keyPath, policyName+"/"+annotation.Key, validation.IsQualifiedName(policyName+"/"+annotation.Key))...)
		}
		if len(strings.TrimSpace(annotation.ValueExpression)) > maxValueExpressionLength {
			errs = append(errs, field.Required(valuePath, fmt.Sprintf("must not exceed %d bytes in length", maxValueExpressionLength)))
		} else {
			errs = append(errs, c.check(auditAnnotation, annotation.ValueExpression, valuePath)...)
		}
		if seen.Has(annotation.Key) {
			errs = append(errs, field.Duplicate(keyPath, annotation.Key))
		}
		seen.Insert(annotation.Key)
	}
	return errs
}

// ValidateValidatingAdmissionPolicyStatusUpdate checks a new status.
func ValidateValidatingAdmissionPolicyStatusUpdate(updated *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status")
	if checking := updated.Status.TypeChecking; checking != nil {
		for i, warning := range checking.ExpressionWarnings {
			warningPath := path.Child("typeChecking", "expressionWarnings").Index(i)
			if warning.Warning == "" {
				errs = append(errs, field.Required(warningPath.Child("warning"), ""))
			}
			errs = append(errs, validateFieldRef(warning.FieldRef, warningPath.Child("fieldRef"))...)
		}
	}
	return append(errs, metav1validation.ValidateConditions(updated.Status.Conditions, path.Child("conditions"))...)
}

// validateFieldRef validates the path of a field. The field need not exist: the spec may
// have changed.
func validateFieldRef(ref string, path *field.Path) field.ErrorList {
	ref = strings.TrimSpace(ref)
	if ref == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	if err := jsonpath.New("spec").Parse("{" + ref + "}"); err != nil {
		return field.ErrorList{field.Invalid(path, ref, fmt.Sprintf("invalid JSONPath: %v", err))}
	}
	return nil
}
