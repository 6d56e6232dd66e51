// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/annex-dev/annex/pkg/apis/rbac/validation"
	"github.com/annex-dev/annex/pkg/registry/table"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// The four resources differ in their types, validation and columns. Whether the writer
// may grant the rights is checked by package escalation.

func newRoles(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter) (*typed.REST, error) {
	return typed.NewREST(typed.Resource{
		Resource: rbacv1.Resource("roles"),
		Singular: "role",
		New:      func() runtime.Object { return &rbacv1.Role{} },
		NewList:  func() runtime.Object { return &rbacv1.RoleList{} },
		Strategy: strategy[*rbacv1.Role]{typed.ValidatedStrategy[*rbacv1.Role]{
			BaseStrategy: typed.Namespaced(typer), ValidateFunc: validation.ValidateRole, ValidateUpdateFunc: validation.ValidateRoleUpdate,
		}},
		Table: table.New(rbacv1.Resource("roles"), table.Name[*rbacv1.Role](), table.CreatedAt[*rbacv1.Role]()),
	}, getter)
}

func newClusterRoles(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter) (*typed.REST, error) {
	return typed.NewREST(typed.Resource{
		Resource: rbacv1.Resource("clusterroles"),
		Singular: "clusterrole",
		New:      func() runtime.Object { return &rbacv1.ClusterRole{} },
		NewList:  func() runtime.Object { return &rbacv1.ClusterRoleList{} },
		Strategy: strategy[*rbacv1.ClusterRole]{typed.ValidatedStrategy[*rbacv1.ClusterRole]{
			BaseStrategy: typed.ClusterScoped(typer), ValidateFunc: validation.ValidateClusterRole, ValidateUpdateFunc: validation.ValidateClusterRoleUpdate,
		}},
		Table: table.New(rbacv1.Resource("clusterroles"), table.Name[*rbacv1.ClusterRole](), table.CreatedAt[*rbacv1.ClusterRole]()),
	}, getter)
}

func newRoleBindings(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter) (*typed.REST, error) {
	return typed.NewREST(typed.Resource{
		Resource: rbacv1.Resource("rolebindings"),
		Singular: "rolebinding",
		New:      func() runtime.Object { return &rbacv1.RoleBinding{} },
		NewList:  func() runtime.Object { return &rbacv1.RoleBindingList{} },
		Strategy: strategy[*rbacv1.RoleBinding]{typed.ValidatedStrategy[*rbacv1.RoleBinding]{
			BaseStrategy: typed.Namespaced(typer), ValidateFunc: validation.ValidateRoleBinding, ValidateUpdateFunc: validation.ValidateRoleBindingUpdate,
		}},
		Table: table.New(rbacv1.Resource("rolebindings"), bindingColumns("roleBinding", rbacv1.RoleBinding{}.SwaggerDoc(),
			func(binding *rbacv1.RoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) {
				return binding.RoleRef, binding.Subjects
			})...),
	}, getter)
}

func newClusterRoleBindings(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter) (*typed.REST, error) {
	return typed.NewREST(typed.Resource{
		Resource: rbacv1.Resource("clusterrolebindings"),
		Singular: "clusterrolebinding",
		New:      func() runtime.Object { return &rbacv1.ClusterRoleBinding{} },
		NewList:  func() runtime.Object { return &rbacv1.ClusterRoleBindingList{} },
		Strategy: strategy[*rbacv1.ClusterRoleBinding]{typed.ValidatedStrategy[*rbacv1.ClusterRoleBinding]{
			BaseStrategy: typed.ClusterScoped(typer), ValidateFunc: validation.ValidateClusterRoleBinding, ValidateUpdateFunc: validation.ValidateClusterRoleBindingUpdate,
		}},
		Table: table.New(rbacv1.Resource("clusterrolebindings"), bindingColumns("clusterRoleBinding", rbacv1.ClusterRoleBinding{}.SwaggerDoc(),
			func(binding *rbacv1.ClusterRoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) {
				return binding.RoleRef, binding.Subjects
			})...),
	}, getter)
}

type strategy[T runtime.Object] struct {
	typed.ValidatedStrategy[T]
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
