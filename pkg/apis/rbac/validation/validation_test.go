// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/apis/rbac/validation"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func meta(name, namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: namespace, ResourceVersion: "1"}
}

func TestValidateRole(t *testing.T) {
	t.Parallel()
	type rule = rbacv1.PolicyRule
	one := []string{"x"}
	tests := []struct {
		name string
		role string
		rule rule
		// want are the errors of a role, wantCluster of a cluster role if they differ.
		want, wantCluster []string
	}{
		{name: "resources", rule: rule{Verbs: one, APIGroups: one, Resources: one, ResourceNames: one}},
		{name: "names with colons", role: "system::a:B", rule: rule{Verbs: one, APIGroups: []string{""}, Resources: []string{"*"}}},
		{
			name: "URLs", rule: rule{Verbs: one, NonResourceURLs: []string{"/a"}},
			want:        []string{`rules[0].nonResourceURLs: Invalid value: ["/a"]: namespaced rules cannot apply to non-resource URLs`},
			wantCluster: []string{},
		},
		{
			name: "both", rule: rule{Verbs: one, NonResourceURLs: []string{"/a"}, ResourceNames: one},
			want: []string{
				`rules[0].nonResourceURLs: Invalid value: ["/a"]: namespaced rules cannot apply to non-resource URLs`,
				`rules[0].nonResourceURLs: Invalid value: ["/a"]: rules cannot apply to both regular resources and non-resource URLs`,
			},
			wantCluster: []string{`rules[0].nonResourceURLs: Invalid value: ["/a"]: rules cannot apply to both regular resources and non-resource URLs`},
		},
		{name: "nothing", rule: rule{}, want: []string{
			"rules[0].verbs: Required value",
			"rules[0].apiGroups: Required value: resource rules must supply at least one api group",
			"rules[0].resources: Required value: resource rules must supply at least one resource",
		}},
		{
			name: "name", role: "a/b", rule: rule{Verbs: one, APIGroups: one, Resources: one},
			want: []string{`metadata.name: Invalid value: "a/b": may not contain '/'`},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			name := "a"
			if test.role != "" {
				name = test.role
			}
			role := &rbacv1.Role{ObjectMeta: meta(name, "ns"), Rules: []rule{test.rule}}
			clusterRole := &rbacv1.ClusterRole{ObjectMeta: meta(name, ""), Rules: []rule{test.rule}}
			wantCluster := test.want
			if test.wantCluster != nil {
				wantCluster = test.wantCluster
			}
			expect.FieldErrors(t, validation.ValidateRole(role), test.want...)
			expect.FieldErrors(t, validation.ValidateClusterRole(clusterRole), wantCluster...)
			expect.FieldErrors(t, validation.ValidateClusterRoleUpdate(clusterRole, clusterRole), wantCluster...)
		})
	}
}

func TestValidateAggregationRule(t *testing.T) {
	t.Parallel()
	aggregated := func(selectors ...metav1.LabelSelector) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: meta("a", ""), AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: selectors}}
	}
	expect.FieldErrors(t, validation.ValidateClusterRole(aggregated(metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}})))
	expect.FieldErrors(t, validation.ValidateClusterRole(aggregated()),
		"aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil")
	expect.FieldErrors(t, validation.ValidateClusterRole(aggregated(metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}})),
		`aggregationRule.clusterRoleSelectors[0].matchExpressions[0].operator: Invalid value: "Like": not a valid selector operator`,
		"aggregationRule.clusterRoleSelectors[0]: Invalid value: ")
	old := aggregated(metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: []string{"no good"}}}})
	if errs := validation.ValidateClusterRole(old); len(errs) == 0 {
		t.Error("a value that no label has is accepted")
	}
	expect.FieldErrors(t, validation.ValidateClusterRoleUpdate(old, aggregated(metav1.LabelSelector{})),
		"aggregationRule.clusterRoleSelectors[0].matchExpressions[0].values[0]: Invalid value", "aggregationRule.clusterRoleSelectors[0]: Invalid value")
}

func TestValidateBinding(t *testing.T) {
	t.Parallel()
	type subject = rbacv1.Subject
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "r"}
	tests := []struct {
		name              string
		ref               rbacv1.RoleRef
		subjects          []subject
		want, wantCluster []string
	}{
		{name: "no subjects", ref: ref},
		{name: "all kinds of subjects", ref: ref, subjects: []subject{
			{APIGroup: rbacv1.GroupName, Kind: "User", Name: "u u"}, {APIGroup: rbacv1.GroupName, Kind: "Group", Name: "g:g"},
			{Kind: "ServiceAccount", Namespace: "ns", Name: "s"},
		}},
		{
			name: "role", ref: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "r"},
			wantCluster: []string{`roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"`},
		},
		{
			name: "no role",
			want: []string{
				`roleRef.apiGroup: Unsupported value: "": supported values: "rbac.authorization.k8s.io"`,
				`roleRef.kind: Unsupported value: "": supported values: "Role", "ClusterRole"`, "roleRef.name: Required value",
			},
			wantCluster: []string{
				`roleRef.apiGroup: Unsupported value: "": supported values: "rbac.authorization.k8s.io"`,
				`roleRef.kind: Unsupported value: "": supported values: "ClusterRole"`, "roleRef.name: Required value",
			},
		},
		{
			name: "name of the role", ref: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: ".."},
			want: []string{`roleRef.name: Invalid value: "..": may not be '..'`},
		},
		{
			name: "subjects", ref: ref, subjects: []subject{
				{Kind: "User", Name: "u"}, {APIGroup: "v1", Kind: "Group"}, {APIGroup: rbacv1.GroupName, Kind: "ServiceAccount", Namespace: "ns", Name: "S"},
				{Kind: "Role", Name: "x"},
			},
			want: []string{
				`subjects[0].apiGroup: Unsupported value: "": supported values: "rbac.authorization.k8s.io"`,
				"subjects[1].name: Required value", `subjects[1].apiGroup: Unsupported value: "v1"`,
				`subjects[2].name: Invalid value: "S": a lowercase RFC 1123 subdomain`, `subjects[2].apiGroup: Unsupported value: "rbac.authorization.k8s.io": supported values: ""`,
				`subjects[3].kind: Unsupported value: "Role": supported values: "ServiceAccount", "User", "Group"`,
			},
		},
		{
			name: "a service account of here", ref: ref, subjects: []subject{{Kind: "ServiceAccount", Name: "s"}},
			wantCluster: []string{"subjects[0].namespace: Required value"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			wantCluster := test.want
			if test.wantCluster != nil {
				wantCluster = test.wantCluster
			}
			binding := &rbacv1.RoleBinding{ObjectMeta: meta("a", "ns"), RoleRef: test.ref, Subjects: test.subjects}
			clusterBinding := &rbacv1.ClusterRoleBinding{ObjectMeta: meta("a", ""), RoleRef: test.ref, Subjects: test.subjects}
			expect.FieldErrors(t, validation.ValidateRoleBinding(binding), test.want...)
			expect.FieldErrors(t, validation.ValidateRoleBindingUpdate(binding, binding), test.want...)
			expect.FieldErrors(t, validation.ValidateClusterRoleBinding(clusterBinding), wantCluster...)
			expect.FieldErrors(t, validation.ValidateClusterRoleBindingUpdate(clusterBinding, clusterBinding), wantCluster...)
		})
	}
	t.Run("another role", func(t *testing.T) {
		t.Parallel()
		other := ref
		other.Name = "other"
		want := []string{`roleRef: Invalid value: {"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"other"}: field is immutable`}
		expect.FieldErrors(t, validation.ValidateRoleBindingUpdate(
			&rbacv1.RoleBinding{ObjectMeta: meta("a", "ns"), RoleRef: other}, &rbacv1.RoleBinding{ObjectMeta: meta("a", "ns"), RoleRef: ref}), want...)
		expect.FieldErrors(t, validation.ValidateClusterRoleBindingUpdate(
			&rbacv1.ClusterRoleBinding{ObjectMeta: meta("a", ""), RoleRef: other}, &rbacv1.ClusterRoleBinding{ObjectMeta: meta("a", ""), RoleRef: ref}), want...)
	})
}
