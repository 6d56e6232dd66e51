// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	rbacv1client "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/controller/framework"
)

// Ensure creates the default roles and bindings, and adds missing rules, subjects, labels
// and annotations to existing ones, unless they have the annotation autoupdate "false".
// It removes nothing. It also writes the rules of aggregated roles.
//
// It compares with one list. A concurrent change makes it fail; it can be retried.
func Ensure(ctx context.Context, annexRBAC rbacv1client.RbacV1Interface) error {
	roles, err := annexRBAC.ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list cluster roles: %w", err)
	}
	bindings, err := annexRBAC.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list cluster role bindings: %w", err)
	}
	storedRoles := &roleModifier{ctx: ctx, client: annexRBAC.ClusterRoles(), stored: byName(framework.Pointers(roles.Items))}
	storedBindings := &bindingModifier{ctx: ctx, client: annexRBAC.ClusterRoleBindings(), stored: byName(framework.Pointers(bindings.Items))}

	var work []func() error
	for _, role := range defaultClusterRoles() {
		work = append(work, func() error { return ensureRole(ctx, storedRoles, role) })
	}
	for _, binding := range defaultClusterRoleBindings() {
		work = append(work, func() error { return ensureBinding(ctx, storedBindings, binding) })
	}
	// Concurrently: etcd writes requests that arrive together to disk at once.
	if err := utilerrors.AggregateGoroutines(work...); err != nil {
		return err
	}
	roles, err = annexRBAC.ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list cluster roles: %w", err)
	}
	return aggregate(ctx, framework.Pointers(roles.Items), annexRBAC.ClusterRoles())
}

func ensureRole(ctx context.Context, stored *roleModifier, role *rbacv1.ClusterRole) error {
	options := reconciliation.ReconcileRoleOptions{
		Role: reconciliation.ClusterRoleRuleOwner{ClusterRole: role}, Client: stored, Confirm: true,
	}
	result, err := options.Run()
	if err != nil {
		return fmt.Errorf("reconcile cluster role %s: %w", role.Name, err)
	}
	log(ctx, "ClusterRole", role.Name, result.Operation, result.Protected)
	return nil
}

func ensureBinding(ctx context.Context, stored *bindingModifier, binding *rbacv1.ClusterRoleBinding) error {
	options := reconciliation.ReconcileRoleBindingOptions{
		RoleBinding: reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: binding}, Client: stored, Confirm: true,
	}
	result, err := options.Run()
	if err != nil {
		return fmt.Errorf("reconcile cluster role binding %s: %w", binding.Name, err)
	}
	log(ctx, "ClusterRoleBinding", binding.Name, result.Operation, result.Protected)
	return nil
}

func log(ctx context.Context, kind, name string, operation reconciliation.ReconcileOperation, protected bool) {
	logger := klog.FromContext(ctx).WithValues("kind", kind, "name", name)
	switch {
	case operation == reconciliation.ReconcileNone:
	case protected:
		logger.V(1).Info("Left as it is, though it is not what it is by default: it is annotated so", "annotation", rbacv1.AutoUpdateAnnotationKey)
	default:
		logger.V(2).Info("Reconciled a default of RBAC", "operation", operation)
	}
}

// roleModifier reads cluster roles from a list. Upstream's modifier has no context, and
// reads each role.
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

func byName[O metav1.Object](objects []O) map[string]O {
	named := make(map[string]O, len(objects))
	for _, object := range objects {
		named[object.GetName()] = object
	}
	return named
}
