// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"regexp"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// policy is the common part of validating and mutating policies.
type policy struct {
	failurePolicy    *admissionregistrationv1.FailurePolicyType
	paramKind        *admissionregistrationv1.ParamKind
	matchConstraints *admissionregistrationv1.MatchResources
	matchConditions  []admissionregistrationv1.MatchCondition
	variables        []admissionregistrationv1.Variable
}

// sameConditions reports whether a stored policy has the same conditions with the same
// variables. They are not validated again then.
func (p policy) sameConditions(stored *policy) bool {
	return stored != nil &&
		apiequality.Semantic.DeepEqual(p.paramKind, stored.paramKind) &&
		apiequality.Semantic.DeepEqual(p.matchConditions, stored.matchConditions)
}

// validatePolicy validates the common part, and compiles the variables in c.
func validatePolicy(p policy, stored *policy, c checker) field.ErrorList {
	errs := validateRequired(p.failurePolicy, failurePolicies, specPath.Child("failurePolicy"))
	if p.paramKind != nil {
		errs = append(errs, validateParamKind(p.paramKind, specPath.Child("paramKind"))...)
	}
	constraintsPath := specPath.Child("matchConstraints")
	if p.matchConstraints == nil {
		errs = append(errs, field.Required(constraintsPath, ""))
	} else {
		errs = append(errs, validateMatchResources(p.matchConstraints, constraintsPath)...)
		// Without a rule the types in expressions are unknown.
		if len(p.matchConstraints.ResourceRules) == 0 {
			errs = append(errs, field.Required(constraintsPath.Child("resourceRules"), ""))
		}
	}
	if !p.sameConditions(stored) {
		errs = append(errs, c.checkConditions(p.matchConditions, specPath.Child("matchConditions"))...)
	}
	for i := range p.variables {
		path := specPath.Child("variables").Index(i)
		errs = append(errs, validateVariableName(p.variables[i].Name, path.Child("name"))...)
		errs = append(errs, c.checkVariable(&p.variables[i], path.Child("expression"))...)
	}
	return errs
}

func validateParamKind(kind *admissionregistrationv1.ParamKind, path *field.Path) field.ErrorList {
	errs := validateAPIVersion(kind.APIVersion, path.Child("apiVersion"))
	if kind.Kind == "" {
		return append(errs, field.Required(path.Child("kind"), ""))
	}
	if messages := validation.IsDNS1035Label(strings.ToLower(kind.Kind)); len(messages) > 0 {
		errs = append(errs, field.Invalid(path.Child("kind"), kind.Kind, "may have mixed case, but should otherwise match: "+strings.Join(messages, ",")))
	}
	return errs
}

func validateAPIVersion(apiVersion string, path *field.Path) field.ErrorList {
	if apiVersion == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	groupVersion, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return field.ErrorList{field.Invalid(path, apiVersion, err.Error())}
	}
	var errs field.ErrorList
	if groupVersion.Group != "" {
		if messages := validation.IsDNS1123Subdomain(groupVersion.Group); len(messages) > 0 {
			errs = append(errs, field.Invalid(path, groupVersion.Group, strings.Join(messages, ",")))
		}
	}
	if groupVersion.Version == "" {
		return append(errs, field.Invalid(path, apiVersion, "version must be specified"))
	}
	if messages := validation.IsDNS1035Label(groupVersion.Version); len(messages) > 0 {
		errs = append(errs, field.Invalid(path, groupVersion.Version, strings.Join(messages, ",")))
	}
	return errs
}

var (
	celIdentifier = regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`)
	// celReserved are the reserved words of CEL.
	celReserved = sets.New("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if",
		"import", "let", "loop", "package", "namespace", "return", "var", "void", "while")
)

func validateVariableName(name string, path *field.Path) field.ErrorList {
	switch {
	case strings.TrimSpace(name) == "":
		return field.ErrorList{field.Required(path, "name is not specified")}
	case !celIdentifier.MatchString(name) || celReserved.Has(name):
		return field.ErrorList{field.Invalid(path, name, "must be a valid CEL identifier")}
	}
	return nil
}
