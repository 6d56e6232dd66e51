// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rolebinding is the REST storage of role bindings.
package rolebinding

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
	return validation.ValidateRoleBinding(obj.(*rbacv1.RoleBinding))
}

// AllowCreateOnUpdate lets a PUT create, as in Kubernetes.
func (strategy) AllowCreateOnUpdate(context.Context) bool { return true }

func (strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateRoleBindingUpdate(obj.(*rbacv1.RoleBinding), old.(*rbacv1.RoleBinding))
}
