// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	rbacv1 "k8s.io/api/rbac/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// ClusterRules are the rights that annex needs in the main cluster for a group, except those of
// RewriteOwners. definitions are the names of the group's definitions.
func ClusterRules(group string, definitions ...string) []rbacv1.PolicyRule {
	const admission = "admissionregistration.k8s.io"
	policies := []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}
	names := []string{hostingv1alpha1.FrozenPolicyName(group), hostingv1alpha1.CopyPolicyName(group), hostingv1alpha1.HoldPolicyName(group)}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, ResourceNames: definitions, Verbs: []string{"update"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list"}},
		{APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"}, Verbs: []string{"get"}},
		{APIGroups: []string{group}, Resources: []string{"*"}, Verbs: []string{"get", "list", "create", "update", "patch", "delete"}},
		// RBAC cannot restrict creation to names.
		{APIGroups: []string{admission}, Resources: policies, Verbs: []string{"create"}},
		{APIGroups: []string{admission}, Resources: policies, ResourceNames: names, Verbs: []string{"get", "update", "delete"}},
	}
}

// NamespaceRules are the rights that RaiseRevision needs in namespace annex-system, for any group.
func NamespaceRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "update", "delete"}},
	}
}

// OwnerRules are the rights with which RewriteOwners skips nothing. Fewer are enough if the
// objects of the group own no others: RewriteOwners reports what it skips.
func OwnerRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "patch"}}}
}
