// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	rbacv1client "k8s.io/client-go/kubernetes/typed/rbac/v1"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/controller/framework"
)

const (
	// ControllerName names the controller in logs and metrics.
	ControllerName = "clusterrole-aggregation"

	// everything is the one key there is: any role may be part of any other.
	everything = "everything"
)

// Config holds what the controller depends on.
type Config struct {
	AnnexClusterRoles rbacv1client.ClusterRoleInterface
	ClusterRoles      cache.SharedIndexInformer
}

// Controller keeps the rules of aggregated roles.
type Controller struct {
	queue  *framework.Queue[string]
	synced cache.DoneChecker
}

// New returns a controller that follows the informer of config and does nothing
// before Run.
func New(config Config) (*Controller, error) {
	lister := rbaclisters.NewClusterRoleLister(config.ClusterRoles.GetIndexer())
	c := &Controller{queue: framework.NewQueue(framework.QueueConfig[string]{
		Name: ControllerName,
		Reconcile: func(ctx context.Context, _ string) (framework.Result, error) {
			roles, err := lister.List(labels.Everything())
			if err != nil {
				return framework.Result{}, fmt.Errorf("list cluster roles: %w", err)
			}
			return framework.Result{}, aggregate(ctx, roles, config.AnnexClusterRoles)
		},
	})}
	registration, err := config.ClusterRoles.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { c.queue.Add(everything) },
		UpdateFunc: func(before, after any) {
			if matters(before.(*rbacv1.ClusterRole), after.(*rbacv1.ClusterRole)) {
				c.queue.Add(everything)
			}
		},
		DeleteFunc: func(any) { c.queue.Add(everything) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch cluster roles: %w", err)
	}
	c.synced = registration.HasSyncedChecker()
	return c, nil
}

// Run keeps the rules until ctx is done.
func (c *Controller) Run(ctx context.Context, workers int) {
	c.queue.Run(ctx, workers, c.synced)
}

// matters reports whether what a role gathers, or gives to others, may differ.
// That nothing changed is what informers say now and then, in case an event was lost.
func matters(before, after *rbacv1.ClusterRole) bool {
	return before.ResourceVersion == after.ResourceVersion ||
		!equality.Semantic.DeepEqual(before.Rules, after.Rules) ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.AggregationRule, after.AggregationRule)
}
