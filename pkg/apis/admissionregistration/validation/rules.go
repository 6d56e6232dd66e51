// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

const wildcard = "*"

var (
	failurePolicies = sets.New(admissionregistrationv1.Ignore, admissionregistrationv1.Fail)
	matchPolicies   = sets.New(admissionregistrationv1.Exact, admissionregistrationv1.Equivalent)
	scopes          = sets.New(admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope, admissionregistrationv1.AllScopes)
	operations      = sets.New(admissionregistrationv1.OperationAll, admissionregistrationv1.Create, admissionregistrationv1.Update,
		admissionregistrationv1.Delete, admissionregistrationv1.Connect)
	mutableOperations = operations.Difference(sets.New(admissionregistrationv1.Delete))
)

func validateMatchResources(match *admissionregistrationv1.MatchResources, path *field.Path) field.ErrorList {
	if match == nil {
		return nil
	}
	errs := validateRequired(match.MatchPolicy, matchPolicies, path.Child("matchPolicy"))
	errs = append(errs, validateSelector(match.NamespaceSelector, path.Child("namespaceSelector"))...)
	errs = append(errs, validateSelector(match.ObjectSelector, path.Child("objectSelector"))...)
	for i := range match.ResourceRules {
		errs = append(errs, validateNamedRule(&match.ResourceRules[i], path.Child("resourceRules").Index(i))...)
	}
	for i := range match.ExcludeResourceRules {
		errs = append(errs, validateNamedRule(&match.ExcludeResourceRules[i], path.Child("excludeResourceRules").Index(i))...)
	}
	return errs
}

func validateSelector(selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if selector == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	return metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, path)
}

func validateNamedRule(rule *admissionregistrationv1.NamedRuleWithOperations, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, name := range rule.ResourceNames {
		namePath := path.Child("resourceNames").Index(i)
		errs = append(errs, metavalidation.Invalid(namePath, name, content.IsPathSegmentName(name))...)
		if seen.Has(name) {
			errs = append(errs, field.Duplicate(namePath, name))
		}
		seen.Insert(name)
	}
	return append(errs, validateRule(&rule.RuleWithOperations, path)...)
}

func validateRule(rule *admissionregistrationv1.RuleWithOperations, path *field.Path) field.ErrorList {
	errs := validateAlternatives(rule.Operations, "operations", path.Child("operations"))
	for i, operation := range rule.Operations {
		errs = append(errs, validateOneOf(&operation, operations, path.Child("operations").Index(i))...)
	}
	// The core group is empty.
	errs = append(errs, validateAlternatives(rule.APIGroups, "API groups", path.Child("apiGroups"))...)
	errs = append(errs, validateAlternatives(rule.APIVersions, "API versions", path.Child("apiVersions"))...)
	for i, version := range rule.APIVersions {
		if version == "" {
			errs = append(errs, field.Required(path.Child("apiVersions").Index(i), ""))
		}
	}
	errs = append(errs, validateResources(rule.Resources, path.Child("resources"))...)
	return append(errs, validateOneOf(rule.Scope, scopes, path.Child("scope"))...)
}

// validateAlternatives requires one or more values, or only "*".
func validateAlternatives[T ~string](values []T, what string, path *field.Path) field.ErrorList {
	switch {
	case len(values) == 0:
		return field.ErrorList{field.Required(path, "")}
	case len(values) > 1 && slices.Contains(values, T(wildcard)):
		return field.ErrorList{field.Invalid(path, values, fmt.Sprintf("if '*' is present, must not specify other %s", what))}
	}
	return nil
}

// validateResources rejects a resource that a previous wildcard covers. Like Kubernetes,
// it ignores later wildcards.
func validateResources(resources []string, path *field.Path) field.ErrorList {
	if len(resources) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	allOf, everywhere := sets.New[string](), sets.New[string]() // the x of x/* and of */x
	all, plainAfterAll := false, false
	for i, entry := range resources {
		resource, subresource, found := strings.Cut(entry, "/")
		switch {
		case entry == "":
			errs = append(errs, field.Required(path.Index(i), ""))
			continue
		case entry == wildcard:
			all = true
			continue
		case !found:
			plainAfterAll = plainAfterAll || all
			continue
		}
		if allOf.Has(resource) {
			errs = append(errs, field.Invalid(path.Index(i), entry, fmt.Sprintf("if '%s/*' is present, must not specify %s", resource, entry)))
		}
		if everywhere.Has(subresource) {
			errs = append(errs, field.Invalid(path.Index(i), entry, fmt.Sprintf("if '*/%s' is present, must not specify %s", subresource, entry)))
		}
		if subresource == wildcard {
			allOf.Insert(resource)
		}
		if resource == wildcard {
			everywhere.Insert(subresource)
		}
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		errs = append(errs, field.Invalid(path, resources, "if '*/*' is present, must not specify other resources"))
	}
	if plainAfterAll {
		errs = append(errs, field.Invalid(path, resources, "if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}

// validateMutable rejects operations without an object to mutate.
func validateMutable(match *admissionregistrationv1.MatchResources, path *field.Path) field.ErrorList {
	if match == nil {
		return nil
	}
	var errs field.ErrorList
	for _, rule := range match.ResourceRules {
		for _, operation := range rule.Operations {
			errs = append(errs, validateOneOf(&operation, mutableOperations, path.Child("resourceRules", "operations"))...)
		}
	}
	return errs
}
