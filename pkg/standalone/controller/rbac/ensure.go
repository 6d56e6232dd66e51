// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
// A concurrent change makes it fail; it can be retried.
func Ensure(ctx context.Context, annexRBAC rbacv1client.RbacV1Interface) error {
	var work []func() error
	for _, role := range defaultClusterRoles() {
		work = append(work, func() error {
			result, err := (&reconciliation.ReconcileRoleOptions{
				Role:   reconciliation.ClusterRoleRuleOwner{ClusterRole: role},
				Client: reconciliation.ClusterRoleModifier{Client: annexRBAC.ClusterRoles()}, Confirm: true,
			}).Run()
			if err != nil {
				return fmt.Errorf("reconcile cluster role %s: %w", role.Name, err)
			}
			log(ctx, "ClusterRole", role.Name, result.Operation, result.Protected)
			return nil
		})
	}
	for _, binding := range defaultClusterRoleBindings() {
		work = append(work, func() error {
			result, err := (&reconciliation.ReconcileRoleBindingOptions{
				RoleBinding: reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: binding},
				Client:      reconciliation.ClusterRoleBindingClientAdapter{Client: annexRBAC.ClusterRoleBindings()}, Confirm: true,
			}).Run()
			if err != nil {
				return fmt.Errorf("reconcile cluster role binding %s: %w", binding.Name, err)
			}
			log(ctx, "ClusterRoleBinding", binding.Name, result.Operation, result.Protected)
			return nil
		})
	}
	// Concurrently: etcd writes requests that arrive together to disk at once.
	if err := utilerrors.AggregateGoroutines(work...); err != nil {
		return err
	}
	roles, err := annexRBAC.ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list cluster roles: %w", err)
	}
	return aggregate(ctx, framework.Pointers(roles.Items), annexRBAC.ClusterRoles())
}

func log(ctx context.Context, kind, name string, operation reconciliation.ReconcileOperation, protected bool) {
	logger := klog.FromContext(ctx).WithValues("kind", kind, "name", name)
	switch {
	case operation == reconciliation.ReconcileNone:
	case protected:
		logger.V(1).Info("Left a default of RBAC unchanged, as annotated", "annotation", rbacv1.AutoUpdateAnnotationKey)
	default:
		logger.V(2).Info("Reconciled a default of RBAC", "operation", operation)
	}
}
