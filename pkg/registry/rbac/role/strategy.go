// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package role is the REST storage of roles.
package role

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
	return validation.ValidateRole(obj.(*rbacv1.Role))
}

// AllowCreateOnUpdate lets a PUT create, as in Kubernetes.
func (strategy) AllowCreateOnUpdate(context.Context) bool { return true }

func (strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateRoleUpdate(obj.(*rbacv1.Role), old.(*rbacv1.Role))
}
