// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// rules are those of a role.
type rules = []rbacv1.PolicyRule

// moveRules let annex copy the objects, end the watches of the main cluster by a change of its
// definitions, and freeze the copy there. They include what a rollback writes, because annex rolls a
// group back on its own that clients do not reach.
func moveRules(group string, definitions []string) rules {
	return groupRules(group, definitions, "create", "update", "patch", "delete")
}

// finalizeRules let annex remove finalizers from the main cluster's objects of a group, and delete
// the objects.
func finalizeRules(group string, definitions []string) rules {
	return groupRules(group, definitions, "update", "patch", "delete")
}

// finalizedRules let annex remove the policy that freezes a group, once the last definition was deleted.
func finalizedRules(group string) rules {
	return rules{{
		APIGroups: []string{admissionregistrationv1.GroupName}, Resources: policies, ResourceNames: []string{hostingv1alpha1.FrozenPolicyName(group)}, Verbs: []string{"delete"},
	}}
}

var policies = []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}

// groupRules are those of a group, with more verbs for its objects. RBAC cannot restrict create to a
// name.
func groupRules(group string, definitions []string, verbs ...string) rules {
	const admission = admissionregistrationv1.GroupName
	names := []string{hostingv1alpha1.FrozenPolicyName(group), hostingv1alpha1.CopyPolicyName(group), hostingv1alpha1.HoldPolicyName(group)}
	return rules{
		{APIGroups: []string{group}, Resources: []string{"*"}, Verbs: append([]string{"get", "list", "watch"}, verbs...)},
		{APIGroups: []string{definitionsResource.Group}, Resources: []string{definitionsResource.Resource}, ResourceNames: definitions, Verbs: []string{"update", "patch"}},
		{APIGroups: []string{admission}, Resources: policies, Verbs: []string{"create"}},
		{APIGroups: []string{admission}, Resources: policies, ResourceNames: names, Verbs: []string{"get", "update", "delete"}},
	}
}

// rollbackRules let annex write the objects to the main cluster, and change the owner references of
// dependants.
func rollbackRules(group string, definitions []string, dependants []schema.GroupResource) rules {
	all := moveRules(group, definitions)
	byGroup := map[string][]string{}
	for _, dependant := range dependants {
		byGroup[dependant.Group] = append(byGroup[dependant.Group], dependant.Resource)
	}
	for _, of := range slices.Sorted(maps.Keys(byGroup)) {
		all = append(all, rbacv1.PolicyRule{APIGroups: []string{of}, Resources: byGroup[of], Verbs: []string{"get", "list", "patch"}})
	}
	return all
}

// systemRules are the rights in NamespaceAnnexSystem that a command needs. A rollback raises the
// revision of the main cluster's etcd with updates of ConfigMaps.
func systemRules(command string) rules {
	if command != "move" && command != "rollback" {
		return nil
	}
	return rules{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "update", "delete"}}}
}

// role returns the ClusterRole whose rules are aggregated to those of annex.
func role(group string, granted rules) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: hostingv1alpha1.HostedRoleName(group), Labels: map[string]string{hostingv1alpha1.AggregateLabel: "true"}},
		Rules:      granted,
	}
}

// systemRole returns the Role with rights in NamespaceAnnexSystem, and its binding to annex: only
// ClusterRoles are aggregated, and one would give these rights in every namespace.
func systemRole(group string, granted rules, subjects []rbacv1.Subject) (*rbacv1.Role, *rbacv1.RoleBinding) {
	of := metav1.ObjectMeta{Namespace: hostingv1alpha1.NamespaceAnnexSystem, Name: hostingv1alpha1.HostedRoleName(group)}
	version := rbacv1.SchemeGroupVersion.String()
	return &rbacv1.Role{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "Role"}, ObjectMeta: of, Rules: granted},
		&rbacv1.RoleBinding{
			TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "RoleBinding"}, ObjectMeta: of, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: of.Name},
		}
}
