// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusterrole is the REST storage of cluster roles.
package clusterrole

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/annex-dev/annex/pkg/apis/rbac/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

type strategy struct {
	typed.BaseStrategy
}

func (strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return validation.ValidateClusterRole(obj.(*rbacv1.ClusterRole))
}

// AllowCreateOnUpdate lets a PUT create, as in Kubernetes.
func (strategy) AllowCreateOnUpdate(context.Context) bool { return true }

func (strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateClusterRoleUpdate(obj.(*rbacv1.ClusterRole), old.(*rbacv1.ClusterRole))
}
