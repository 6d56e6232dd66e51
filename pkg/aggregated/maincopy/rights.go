// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// MoveRules let annex copy the objects of a group, end the watches of the main cluster by a change of its
// definitions, and freeze the copy there. They include what a rollback writes, because annex rolls a group back
// on its own that clients do not reach. definitions are the names of the group's definitions.
func MoveRules(group string, definitions ...string) []rbacv1.PolicyRule {
	return groupRules(group, definitions, "create", "update", "patch", "delete")
}

// FinalizeRules let annex remove finalizers from the main cluster's objects of a group, and delete the objects.
func FinalizeRules(group string, definitions ...string) []rbacv1.PolicyRule {
	return groupRules(group, definitions, "update", "patch", "delete")
}

// groupRules are the rights for a group beside those that annex has in any main cluster. RBAC cannot restrict
// create to a name.
func groupRules(group string, definitions []string, verbs ...string) []rbacv1.PolicyRule {
	policies := []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}
	names := []string{hostingv1alpha1.FrozenPolicyName(group), hostingv1alpha1.CopyPolicyName(group), hostingv1alpha1.HoldPolicyName(group)}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{group}, Resources: []string{"*"}, Verbs: append([]string{"get", "list", "watch"}, verbs...)},
		{APIGroups: []string{apiextensionsv1.GroupName}, Resources: []string{"customresourcedefinitions"}, ResourceNames: definitions, Verbs: []string{"update", "patch"}},
		{APIGroups: []string{admissionregistrationv1.GroupName}, Resources: policies, Verbs: []string{"create"}},
		{APIGroups: []string{admissionregistrationv1.GroupName}, Resources: policies, ResourceNames: names, Verbs: []string{"get", "update", "delete"}},
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
