// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbac creates the default roles and bindings without reverting additions of
// administrators, and maintains the rules of aggregated cluster roles.
package rbac

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	rbacv1client "k8s.io/client-go/kubernetes/typed/rbac/v1"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/controller/framework"
)

const (
	// ControllerName names the controller in logs and metrics.
	ControllerName = "clusterrole-aggregation"

	// everything is the only key: any role may be part of any other.
	everything = "everything"
)

// Config holds what the controller depends on.
type Config struct {
	AnnexClusterRoles rbacv1client.ClusterRoleInterface
	ClusterRoles      cache.SharedIndexInformer
}

// New returns a controller that maintains the rules of aggregated roles. It adds a handler
// to the informer of config and does nothing before Run.
func New(config Config) (*framework.Queue[string], error) {
	lister := rbaclisters.NewClusterRoleLister(config.ClusterRoles.GetIndexer())
	queue := framework.NewQueue(framework.QueueConfig[string]{
		Name: ControllerName,
		Reconcile: func(ctx context.Context, _ string) (framework.Result, error) {
			roles, err := lister.List(labels.Everything())
			if err != nil {
				return framework.Result{}, fmt.Errorf("list cluster roles: %w", err)
			}
			return framework.Result{}, aggregate(ctx, roles, config.AnnexClusterRoles)
		},
	})
	handler := framework.Every(func(*rbacv1.ClusterRole) { queue.Add(everything) })
	handler.Updated = func(before, after *rbacv1.ClusterRole) {
		if matters(before, after) {
			queue.Add(everything)
		}
	}
	return queue, queue.Watch(framework.Source{Name: "cluster roles", Informer: config.ClusterRoles, Handler: handler})
}

// matters reports whether a change may affect aggregated rules. Resyncs do, in case an
// event was lost.
func matters(before, after *rbacv1.ClusterRole) bool {
	return before.ResourceVersion == after.ResourceVersion ||
		!equality.Semantic.DeepEqual(before.Rules, after.Rules) ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.AggregationRule, after.AggregationRule)
}

// fieldManager owns the rules of aggregated roles, as in Kubernetes.
const fieldManager = "clusterrole-aggregation-controller"

// aggregate writes the outdated rules of aggregated roles. It continues after errors.
func aggregate(ctx context.Context, roles []*rbacv1.ClusterRole, annexClusterRoles rbacv1client.ClusterRoleInterface) error {
	changed, err := settle(ctx, roles)
	errs := []error{err}
	for _, role := range changed {
		if _, err := annexClusterRoles.Update(ctx, role, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
			errs = append(errs, fmt.Errorf("write the rules of cluster role %s: %w", role.Name, err))
		}
	}
	return errors.Join(errs...)
}

// settle returns updated copies of the outdated aggregated roles. A role may aggregate
// aggregated roles.
func settle(ctx context.Context, roles []*rbacv1.ClusterRole) ([]*rbacv1.ClusterRole, error) {
	roles = slices.SortedFunc(slices.Values(roles), func(a, b *rbacv1.ClusterRole) int { return strings.Compare(a.Name, b.Name) })
	changed := map[int]bool{}
	failed := map[string]error{}
	// Each round propagates changes by at least one role, so this many rounds suffice,
	// also for cycles.
	for range roles {
		again := false
		for i, role := range roles {
			if role.AggregationRule == nil {
				continue
			}
			rules, err := gather(ctx, role, roles)
			if err != nil {
				failed[role.Name] = fmt.Errorf("aggregate cluster role %s: %w", role.Name, err)
				continue
			}
			if !equality.Semantic.DeepEqual(rules, role.Rules) {
				updated := *role
				updated.Rules = rules
				roles[i], changed[i], again = &updated, true, true
			}
		}
		if !again {
			break
		}
	}
	var errs []error
	for _, err := range failed {
		errs = append(errs, err)
	}
	var updated []*rbacv1.ClusterRole
	for i, role := range roles {
		if changed[i] {
			updated = append(updated, role)
		}
	}
	return updated, errors.Join(errs...)
}

// gather returns the rules of all roles that a role selects, without duplicates.
func gather(ctx context.Context, role *rbacv1.ClusterRole, roles []*rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	var rules []rbacv1.PolicyRule
	known := sets.New[string]()
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		for _, other := range roles {
			if other.Name == role.Name || !selector.Matches(labels.Set(other.Labels)) {
				continue
			}
			for j := range other.Rules {
				encoded, err := other.Rules[j].Marshal()
				if err != nil {
					return nil, fmt.Errorf("compare the rules of cluster role %s: %w", other.Name, err)
				}
				if !known.Has(string(encoded)) {
					known.Insert(string(encoded))
					rules = append(rules, other.Rules[j])
				}
			}
		}
	}
	return rules, nil
}
