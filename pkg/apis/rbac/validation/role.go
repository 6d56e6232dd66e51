// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation validates objects of rbac.authorization.k8s.io, with the messages of
// Kubernetes.
package validation

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

var (
	rulesPath     = field.NewPath("rules")
	selectorsPath = field.NewPath("aggregationRule", "clusterRoleSelectors")
)

// validateName accepts all names that are valid in a path, such as those with colons.
func validateName(name string, _ bool) []string { return content.IsPathSegmentName(name) }

// ValidateRole validates a Role.
func ValidateRole(role *rbacv1.Role) field.ErrorList {
	errs := metavalidation.ValidateObjectMeta(&role.ObjectMeta, true, validateName)
	return append(errs, validateRules(role.Rules, true)...)
}

// ValidateClusterRole checks a new cluster role.
func ValidateClusterRole(role *rbacv1.ClusterRole) field.ErrorList {
	return validateClusterRole(role, metav1validation.LabelSelectorValidationOptions{})
}

// ValidateClusterRoleUpdate validates an update. Invalid selectors are tolerated if one
// of them is stored already.
func ValidateClusterRoleUpdate(newRole, oldRole *rbacv1.ClusterRole) field.ErrorList {
	return validateClusterRole(newRole, metav1validation.LabelSelectorValidationOptions{
		AllowInvalidLabelValueInSelector: len(validateSelectors(oldRole.AggregationRule, metav1validation.LabelSelectorValidationOptions{})) > 0,
	})
}

func validateClusterRole(role *rbacv1.ClusterRole, options metav1validation.LabelSelectorValidationOptions) field.ErrorList {
	errs := metavalidation.ValidateObjectMeta(&role.ObjectMeta, false, validateName)
	errs = append(errs, validateRules(role.Rules, false)...)
	if role.AggregationRule != nil && len(role.AggregationRule.ClusterRoleSelectors) == 0 {
		errs = append(errs, field.Required(selectorsPath, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	return append(errs, validateSelectors(role.AggregationRule, options)...)
}

func validateSelectors(aggregation *rbacv1.AggregationRule, options metav1validation.LabelSelectorValidationOptions) field.ErrorList {
	if aggregation == nil {
		return nil
	}
	var errs field.ErrorList
	for i := range aggregation.ClusterRoleSelectors {
		selector, path := &aggregation.ClusterRoleSelectors[i], selectorsPath.Index(i)
		errs = append(errs, metav1validation.ValidateLabelSelector(selector, options, path)...)
		if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
			errs = append(errs, field.Invalid(path, *selector, "invalid label selector."))
		}
	}
	return errs
}

func validateRules(rules []rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i := range rules {
		errs = append(errs, validateRule(&rules[i], namespaced, rulesPath.Index(i))...)
	}
	return errs
}

func validateRule(rule *rbacv1.PolicyRule, namespaced bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(rule.Verbs) == 0 {
		errs = append(errs, field.Required(path.Child("verbs"), ""))
	}
	if urls := path.Child("nonResourceURLs"); len(rule.NonResourceURLs) > 0 {
		if namespaced {
			errs = append(errs, field.Invalid(urls, rule.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
		}
		if len(rule.APIGroups) > 0 || len(rule.Resources) > 0 || len(rule.ResourceNames) > 0 {
			errs = append(errs, field.Invalid(urls, rule.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
		}
		return errs
	}
	if len(rule.APIGroups) == 0 {
		errs = append(errs, field.Required(path.Child("apiGroups"), "resource rules must supply at least one api group"))
	}
	if len(rule.Resources) == 0 {
		errs = append(errs, field.Required(path.Child("resources"), "resource rules must supply at least one resource"))
	}
	return errs
}
