// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheme

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func addRBAC(scheme *runtime.Scheme) error {
	addDefaults(scheme, &rbacv1.RoleBinding{}, &rbacv1.RoleBindingList{}, func(binding *rbacv1.RoleBinding) {
		setBindingDefaults(&binding.RoleRef, binding.Subjects)
	})
	addDefaults(scheme, &rbacv1.ClusterRoleBinding{}, &rbacv1.ClusterRoleBindingList{}, func(binding *rbacv1.ClusterRoleBinding) {
		setBindingDefaults(&binding.RoleRef, binding.Subjects)
	})
	return rbacv1.AddToScheme(scheme)
}

// setBindingDefaults sets the API group of the role, users and groups. Service accounts are in
// the core group, which is empty.
func setBindingDefaults(role *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	if role.APIGroup == "" {
		role.APIGroup = rbacv1.GroupName
	}
	for i := range subjects {
		if subject := &subjects[i]; subject.APIGroup == "" && (subject.Kind == rbacv1.UserKind || subject.Kind == rbacv1.GroupKind) {
			subject.APIGroup = rbacv1.GroupName
		}
	}
}
