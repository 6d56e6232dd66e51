// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"errors"
	"fmt"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacv1client "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	"k8s.io/klog/v2"
)

// Ensure makes the default roles and bindings, and adds to those that exist what
// they lack of rules, subjects, labels and annotations: unless an administrator has
// annotated one with autoupdate "false". It takes nothing away. Aggregated roles
// have their rules when it returns.
//
// All is compared with one look at what there is. Where somebody else changes an
// object meanwhile it fails, and can be tried again.
func Ensure(ctx context.Context, annexRBAC rbacv1client.RbacV1Interface) error {
	roles, err := annexRBAC.ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list cluster roles: %w", err)
	}
	bindings, err := annexRBAC.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list cluster role bindings: %w", err)
	}
	storedRoles := &roleModifier{ctx: ctx, client: annexRBAC.ClusterRoles(), stored: byName(pointers(roles.Items))}
	storedBindings := &bindingModifier{ctx: ctx, client: annexRBAC.ClusterRoleBindings(), stored: byName(pointers(bindings.Items))}

	var work []func() error
	for _, role := range defaultClusterRoles() {
		work = append(work, func() error { return ensureRole(ctx, storedRoles, role) })
	}
	for _, binding := range defaultClusterRoleBindings() {
		work = append(work, func() error { return ensureBinding(ctx, storedBindings, binding) })
	}
	if err := atOnce(work); err != nil {
		return err
	}
	roles, err = annexRBAC.ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list cluster roles: %w", err)
	}
	return aggregate(ctx, pointers(roles.Items), annexRBAC.ClusterRoles())
}

// atOnce does things side by side: each write waits for a disk, which one wait does
// for all of them.
func atOnce(work []func() error) error {
	errs := make([]error, len(work))
	var running sync.WaitGroup
	for i, do := range work {
		running.Go(func() { errs[i] = do() })
	}
	running.Wait()
	return errors.Join(errs...)
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
