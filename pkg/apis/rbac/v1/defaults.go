// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1 has the defaults of rbac.authorization.k8s.io/v1.
package v1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/annex-dev/annex/pkg/apis/meta/defaults"
)

var schemeBuilder = runtime.NewSchemeBuilder(rbacv1.AddToScheme, addDefaults)

// AddToScheme adds the types and their defaults to a scheme.
var AddToScheme = schemeBuilder.AddToScheme

func addDefaults(scheme *runtime.Scheme) error {
	defaults.Add(scheme, &rbacv1.RoleBinding{}, &rbacv1.RoleBindingList{}, SetDefaultsRoleBinding)
	defaults.Add(scheme, &rbacv1.ClusterRoleBinding{}, &rbacv1.ClusterRoleBindingList{}, SetDefaultsClusterRoleBinding)
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
