// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	rbacv1client "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
)

// roleModifier reads cluster roles from a list and writes them. Upstream's has no
// context, and asks for each.
type roleModifier struct {
	ctx    context.Context
	client rbacv1client.ClusterRoleInterface
	stored map[string]*rbacv1.ClusterRole
}

var _ reconciliation.RuleOwnerModifier = &roleModifier{}

func (m *roleModifier) Get(_, name string) (reconciliation.RuleOwner, error) {
	role, found := m.stored[name]
	if !found {
		return nil, apierrors.NewNotFound(rbacv1.Resource("clusterroles"), name)
	}
	return reconciliation.ClusterRoleRuleOwner{ClusterRole: role}, nil
}

func (m *roleModifier) Create(owner reconciliation.RuleOwner) (reconciliation.RuleOwner, error) {
	return asOwner(m.client.Create(m.ctx, owner.(reconciliation.ClusterRoleRuleOwner).ClusterRole, metav1.CreateOptions{}))
}

func (m *roleModifier) Update(owner reconciliation.RuleOwner) (reconciliation.RuleOwner, error) {
	return asOwner(m.client.Update(m.ctx, owner.(reconciliation.ClusterRoleRuleOwner).ClusterRole, metav1.UpdateOptions{}))
}

func asOwner(role *rbacv1.ClusterRole, err error) (reconciliation.RuleOwner, error) {
	return reconciliation.ClusterRoleRuleOwner{ClusterRole: role}, err
}

// bindingModifier is the same for cluster role bindings.
type bindingModifier struct {
	ctx    context.Context
	client rbacv1client.ClusterRoleBindingInterface
	stored map[string]*rbacv1.ClusterRoleBinding
}

var _ reconciliation.RoleBindingModifier = &bindingModifier{}

func (m *bindingModifier) Get(_, name string) (reconciliation.RoleBinding, error) {
	binding, found := m.stored[name]
	if !found {
		return nil, apierrors.NewNotFound(rbacv1.Resource("clusterrolebindings"), name)
	}
	return reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: binding}, nil
}

func (m *bindingModifier) Delete(_, name string, uid types.UID) error {
	return m.client.Delete(m.ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
}

func (m *bindingModifier) Create(binding reconciliation.RoleBinding) (reconciliation.RoleBinding, error) {
	return asBinding(m.client.Create(m.ctx, binding.(reconciliation.ClusterRoleBindingAdapter).ClusterRoleBinding, metav1.CreateOptions{}))
}

func (m *bindingModifier) Update(binding reconciliation.RoleBinding) (reconciliation.RoleBinding, error) {
	return asBinding(m.client.Update(m.ctx, binding.(reconciliation.ClusterRoleBindingAdapter).ClusterRoleBinding, metav1.UpdateOptions{}))
}

func asBinding(binding *rbacv1.ClusterRoleBinding, err error) (reconciliation.RoleBinding, error) {
	return reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: binding}, err
}

func pointers[T any](items []T) []*T {
	to := make([]*T, 0, len(items))
	for i := range items {
		to = append(to, &items[i])
	}
	return to
}

func byName[O metav1.Object](objects []O) map[string]O {
	named := make(map[string]O, len(objects))
	for _, object := range objects {
		named[object.GetName()] = object
	}
	return named
}
