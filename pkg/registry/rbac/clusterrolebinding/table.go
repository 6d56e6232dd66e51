// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterrolebinding

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/annex-dev/annex/pkg/registry/rbac/subject"
	"github.com/annex-dev/annex/pkg/registry/table"
)

var tableConvertor = table.New(rbacv1.Resource("clusterrolebindings"),
	table.Name[*rbacv1.ClusterRoleBinding](),
	table.Column[*rbacv1.ClusterRoleBinding]{
		Name:        "Role",
		Description: rbacv1.ClusterRoleBinding{}.SwaggerDoc()["roleRef"],
		Value:       func(binding *rbacv1.ClusterRoleBinding) any { return binding.RoleRef.Kind + "/" + binding.RoleRef.Name },
	},
	table.Age[*rbacv1.ClusterRoleBinding](),
	subjects("Users", rbacv1.UserKind),
	subjects("Groups", rbacv1.GroupKind),
	subjects("ServiceAccounts", rbacv1.ServiceAccountKind),
)

// subjects is the column with the subjects of a kind.
func subjects(name, kind string) table.Column[*rbacv1.ClusterRoleBinding] {
	return table.Column[*rbacv1.ClusterRoleBinding]{
		Name:        name,
		Description: name + " in the clusterRoleBinding",
		Priority:    table.Wide,
		Value:       func(binding *rbacv1.ClusterRoleBinding) any { return subject.Names(binding.Subjects, kind) },
	}
}
