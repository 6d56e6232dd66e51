// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1 has the defaults of rbac.authorization.k8s.io/v1.
package v1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var schemeBuilder = runtime.NewSchemeBuilder(rbacv1.AddToScheme, addDefaults)

// AddToScheme adds the types and their defaults to a scheme.
var AddToScheme = schemeBuilder.AddToScheme

func addDefaults(scheme *runtime.Scheme) error {
	scheme.AddTypeDefaultingFunc(&rbacv1.RoleBinding{}, func(obj any) { SetDefaultsRoleBinding(obj.(*rbacv1.RoleBinding)) })
	scheme.AddTypeDefaultingFunc(&rbacv1.RoleBindingList{}, func(obj any) {
		for i := range obj.(*rbacv1.RoleBindingList).Items {
			SetDefaultsRoleBinding(&obj.(*rbacv1.RoleBindingList).Items[i])
		}
	})
	scheme.AddTypeDefaultingFunc(&rbacv1.ClusterRoleBinding{}, func(obj any) { SetDefaultsClusterRoleBinding(obj.(*rbacv1.ClusterRoleBinding)) })
	scheme.AddTypeDefaultingFunc(&rbacv1.ClusterRoleBindingList{}, func(obj any) {
		for i := range obj.(*rbacv1.ClusterRoleBindingList).Items {
			SetDefaultsClusterRoleBinding(&obj.(*rbacv1.ClusterRoleBindingList).Items[i])
		}
	})
	return nil
}

// SetDefaultsRoleBinding sets the default API groups of a role binding.
func SetDefaultsRoleBinding(binding *rbacv1.RoleBinding) {
	setDefaults(&binding.RoleRef, binding.Subjects)
}

// SetDefaultsClusterRoleBinding sets the default API groups of a cluster role binding.
func SetDefaultsClusterRoleBinding(binding *rbacv1.ClusterRoleBinding) {
	setDefaults(&binding.RoleRef, binding.Subjects)
}

// setDefaults sets the API group of the role, users and groups. Service accounts are in
// the core group, which is empty.
func setDefaults(role *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	if role.APIGroup == "" {
		role.APIGroup = rbacv1.GroupName
	}
	for i := range subjects {
		if subject := &subjects[i]; subject.APIGroup == "" && (subject.Kind == rbacv1.UserKind || subject.Kind == rbacv1.GroupKind) {
			subject.APIGroup = rbacv1.GroupName
		}
	}
}
