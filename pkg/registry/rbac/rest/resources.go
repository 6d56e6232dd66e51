// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/annex-dev/annex/pkg/apis/rbac/validation"
	"github.com/annex-dev/annex/pkg/registry/table"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// The four resources differ in their types, validation and columns. Whether the writer
// may grant the rights is checked by package escalation.

func roles(typer runtime.ObjectTyper) typed.Resource {
	return typed.Resource{
		Kind:     rbacv1.SchemeGroupVersion.WithKind("Role"),
		Strategy: newStrategy(typed.Namespaced(typer), validation.ValidateRole, validation.ValidateRoleUpdate),
		Table:    table.New(rbacv1.Resource("roles"), table.Name[*rbacv1.Role](), table.CreatedAt[*rbacv1.Role]()),
	}
}

func clusterRoles(typer runtime.ObjectTyper) typed.Resource {
	return typed.Resource{
		Kind:     rbacv1.SchemeGroupVersion.WithKind("ClusterRole"),
		Strategy: newStrategy(typed.ClusterScoped(typer), validation.ValidateClusterRole, validation.ValidateClusterRoleUpdate),
		Table:    table.New(rbacv1.Resource("clusterroles"), table.Name[*rbacv1.ClusterRole](), table.CreatedAt[*rbacv1.ClusterRole]()),
	}
}

func roleBindings(typer runtime.ObjectTyper) typed.Resource {
	return typed.Resource{
		Kind:     rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
		Strategy: newStrategy(typed.Namespaced(typer), validation.ValidateRoleBinding, validation.ValidateRoleBindingUpdate),
		Table: table.New(rbacv1.Resource("rolebindings"), bindingColumns("roleBinding", rbacv1.RoleBinding{}.SwaggerDoc(),
			func(binding *rbacv1.RoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) {
				return binding.RoleRef, binding.Subjects
			})...),
	}
}

func clusterRoleBindings(typer runtime.ObjectTyper) typed.Resource {
	return typed.Resource{
		Kind:     rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"),
		Strategy: newStrategy(typed.ClusterScoped(typer), validation.ValidateClusterRoleBinding, validation.ValidateClusterRoleBindingUpdate),
		Table: table.New(rbacv1.Resource("clusterrolebindings"), bindingColumns("clusterRoleBinding", rbacv1.ClusterRoleBinding{}.SwaggerDoc(),
			func(binding *rbacv1.ClusterRoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) {
				return binding.RoleRef, binding.Subjects
			})...),
	}
}

type strategy[T runtime.Object] struct {
	typed.ValidatedStrategy[T]
}

func newStrategy[T runtime.Object](base typed.BaseStrategy, validate func(T) field.ErrorList, validateUpdate func(updated, old T) field.ErrorList) strategy[T] {
	return strategy[T]{typed.Validated(base, validate, validateUpdate)}
}

// AllowCreateOnUpdate lets a PUT create, as in Kubernetes.
func (strategy[T]) AllowCreateOnUpdate(context.Context) bool { return true }

// bindingColumns are those of both kinds of bindings.
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
