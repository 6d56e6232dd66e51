// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/annex-dev/annex/pkg/apis/rbac/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/table"
)

// The four resources differ in their types, validation and columns. As in Kubernetes, an update may
// create them. Package escalation checks whether the writer may grant the rights.

var roles = typed.Resource{
	Kind:     rbacv1.SchemeGroupVersion.WithKind("Role"),
	Strategy: typed.Validated(typed.Namespaced.CreatingOnUpdate(), validation.ValidateRole, nil),
	Table:    table.New(rbacv1.Resource("roles"), table.Name[*rbacv1.Role](), table.CreatedAt[*rbacv1.Role]()),
}

var clusterRoles = typed.Resource{
	Kind:     rbacv1.SchemeGroupVersion.WithKind("ClusterRole"),
	Strategy: typed.Validated(typed.ClusterScoped.CreatingOnUpdate(), validation.ValidateClusterRole, validation.ValidateClusterRoleUpdate),
	Table:    table.New(rbacv1.Resource("clusterroles"), table.Name[*rbacv1.ClusterRole](), table.CreatedAt[*rbacv1.ClusterRole]()),
}

var roleBindings = typed.Resource{
	Kind:     rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
	Strategy: typed.Validated(typed.Namespaced.CreatingOnUpdate(), validation.ValidateRoleBinding, validation.ValidateRoleBindingUpdate),
	Table: table.New(rbacv1.Resource("rolebindings"), bindingColumns("roleBinding", rbacv1.RoleBinding{}.SwaggerDoc(),
		func(binding *rbacv1.RoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) {
			return binding.RoleRef, binding.Subjects
		})...),
}

var clusterRoleBindings = typed.Resource{
	Kind:     rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"),
	Strategy: typed.Validated(typed.ClusterScoped.CreatingOnUpdate(), validation.ValidateClusterRoleBinding, validation.ValidateClusterRoleBindingUpdate),
	Table: table.New(rbacv1.Resource("clusterrolebindings"), bindingColumns("clusterRoleBinding", rbacv1.ClusterRoleBinding{}.SwaggerDoc(),
		func(binding *rbacv1.ClusterRoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) {
			return binding.RoleRef, binding.Subjects
		})...),
}

// bindingColumns returns the columns of a kind of bindings.
func bindingColumns[T table.Object](kind string, doc map[string]string, of func(T) (rbacv1.RoleRef, []rbacv1.Subject)) []table.Column[T] {
	columns := []table.Column[T]{
		table.Name[T](),
		{Name: "Role", Description: doc["roleRef"], Value: func(binding T) any {
			role, _ := of(binding)
			return role.Kind + "/" + role.Name
		}},
		table.Age[T](),
	}
	for _, subject := range []struct{ name, kind string }{
		{"Users", rbacv1.UserKind}, {"Groups", rbacv1.GroupKind}, {"ServiceAccounts", rbacv1.ServiceAccountKind},
	} {
		columns = append(columns, table.Column[T]{
			Name: subject.name, Description: subject.name + " in the " + kind, Priority: table.Wide,
			Value: func(binding T) any {
				_, subjects := of(binding)
				return subjectNames(subjects, subject.kind)
			},
		})
	}
	return columns
}

// subjectNames lists the subjects of one kind; a service account has its namespace, if set.
func subjectNames(subjects []rbacv1.Subject, kind string) string {
	var names []string
	for i := range subjects {
		subject := &subjects[i]
		switch {
		case subject.Kind != kind:
		case kind == rbacv1.ServiceAccountKind && subject.Namespace != "":
			names = append(names, subject.Namespace+"/"+subject.Name)
		default:
			names = append(names, subject.Name)
		}
	}
	return strings.Join(names, ", ")
}
