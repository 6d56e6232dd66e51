// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rolebinding

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/annex-dev/annex/pkg/registry/rbac/subject"
	"github.com/annex-dev/annex/pkg/registry/table"
)

var tableConvertor = table.New(rbacv1.Resource("rolebindings"),
	table.Name[*rbacv1.RoleBinding](),
	table.Column[*rbacv1.RoleBinding]{
		Name:        "Role",
		Description: rbacv1.RoleBinding{}.SwaggerDoc()["roleRef"],
		Value:       func(binding *rbacv1.RoleBinding) any { return binding.RoleRef.Kind + "/" + binding.RoleRef.Name },
	},
	table.Age[*rbacv1.RoleBinding](),
	subjects("Users", rbacv1.UserKind),
	subjects("Groups", rbacv1.GroupKind),
	subjects("ServiceAccounts", rbacv1.ServiceAccountKind),
)

// subjects is the column with the subjects of a kind.
func subjects(name, kind string) table.Column[*rbacv1.RoleBinding] {
	return table.Column[*rbacv1.RoleBinding]{
		Name:        name,
		Description: name + " in the roleBinding",
		Priority:    table.Wide,
		Value:       func(binding *rbacv1.RoleBinding) any { return subject.Names(binding.Subjects, kind) },
	}
}
