// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install adds the group rbac.authorization.k8s.io to a scheme.
package install

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	annexrbacv1 "github.com/annex-dev/annex/pkg/apis/rbac/v1"
)

// Install registers the group. One Go type is v1 and the internal type.
func Install(scheme *runtime.Scheme) {
	utilruntime.Must(annexrbacv1.AddToScheme(scheme))
	scheme.AddKnownTypes(schema.GroupVersion{Group: rbacv1.GroupName, Version: runtime.APIVersionInternal},
		&rbacv1.Role{}, &rbacv1.RoleList{},
		&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleList{},
		&rbacv1.RoleBinding{}, &rbacv1.RoleBindingList{},
		&rbacv1.ClusterRoleBinding{}, &rbacv1.ClusterRoleBindingList{},
	)
	utilruntime.Must(scheme.SetVersionPriority(rbacv1.SchemeGroupVersion))
}
