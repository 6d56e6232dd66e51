// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// allows reports whether a rule allows a request.
func allows(rule rbacv1.PolicyRule, request authorizer.Attributes) bool {
	if !hasOr(rule.Verbs, rbacv1.VerbAll, request.GetVerb()) {
		return false
	}
	if !request.IsResourceRequest() {
		return anyURLMatches(rule.NonResourceURLs, request.GetPath())
	}
	return hasOr(rule.APIGroups, rbacv1.APIGroupAll, request.GetAPIGroup()) &&
		anyResourceMatches(rule.Resources, request.GetResource(), request.GetSubresource()) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, request.GetName()))
}

// hasOr reports whether a list has a value or the wildcard.
func hasOr(list []string, all, value string) bool {
	return slices.Contains(list, all) || slices.Contains(list, value)
}

// anyResourceMatches reports whether one of the patterns matches a resource: `*`
// matches all, `*/scale` that subresource of all.
func anyResourceMatches(patterns []string, resource, subresource string) bool {
	if subresource == "" {
		return hasOr(patterns, rbacv1.ResourceAll, resource)
	}
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		return pattern == rbacv1.ResourceAll || joins(pattern, resource, subresource) || joins(pattern, rbacv1.ResourceAll, subresource)
	})
}

// joins reports whether a name equals resource/subresource, without allocating.
func joins(name, resource, subresource string) bool {
	rest, found := strings.CutPrefix(name, resource)
	return found && len(rest) == len(subresource)+1 && rest[0] == '/' && rest[1:] == subresource
}

// anyURLMatches reports whether one of the patterns matches a path: an asterisk at the
// end matches any suffix, also an empty one.
func anyURLMatches(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		return pattern == path || strings.HasSuffix(pattern, "*") && strings.HasPrefix(path, strings.TrimRight(pattern, "*"))
	})
}
