// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	annexrbacv1 "github.com/annex-dev/annex/pkg/apis/rbac/v1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestDefaults(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	expect.NoError(t, annexrbacv1.AddToScheme(scheme))
	ref := rbacv1.RoleRef{Kind: "Role", Name: "r"}
	subjects := []rbacv1.Subject{
		{Kind: "User", Name: "u"}, {Kind: "Group", Name: "g"}, {Kind: "ServiceAccount", Name: "s"}, {Kind: "Other", Name: "o"},
		{Kind: "User", Name: "u", APIGroup: "example.com"},
	}
	wantRef := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "r"}
	wantSubjects := []rbacv1.Subject{
		{Kind: "User", Name: "u", APIGroup: rbacv1.GroupName}, {Kind: "Group", Name: "g", APIGroup: rbacv1.GroupName},
		{Kind: "ServiceAccount", Name: "s"}, {Kind: "Other", Name: "o"}, {Kind: "User", Name: "u", APIGroup: "example.com"},
	}
	binding := rbacv1.RoleBinding{RoleRef: ref, Subjects: subjects}
	clusterBinding := rbacv1.ClusterRoleBinding{RoleRef: ref, Subjects: subjects}
	want := rbacv1.RoleBinding{RoleRef: wantRef, Subjects: wantSubjects}
	wantCluster := rbacv1.ClusterRoleBinding{RoleRef: wantRef, Subjects: wantSubjects}
	tests := []struct{ object, want runtime.Object }{
		{binding.DeepCopy(), &want},
		{clusterBinding.DeepCopy(), &wantCluster},
		{&rbacv1.RoleBindingList{Items: []rbacv1.RoleBinding{*binding.DeepCopy()}}, &rbacv1.RoleBindingList{Items: []rbacv1.RoleBinding{want}}},
		{
			&rbacv1.ClusterRoleBindingList{Items: []rbacv1.ClusterRoleBinding{*clusterBinding.DeepCopy()}},
			&rbacv1.ClusterRoleBindingList{Items: []rbacv1.ClusterRoleBinding{wantCluster}},
		},
	}
	for _, test := range tests {
		scheme.Default(test.object)
		expect.Equal(t, test.want, test.object, "%T", test.object)
	}
}
