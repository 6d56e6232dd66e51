// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/standalone/authorization/rbac"
)

// storedSource reads roles and bindings from storage.
type storedSource struct {
	roles, clusterRoles, roleBindings, clusterRoleBindings *typed.REST
}

var _ rbac.Source = &storedSource{}

// Role implements rbac.Source.
func (s *storedSource) Role(ctx context.Context, namespace, name string) (*rbacv1.Role, error) {
	return get[*rbacv1.Role](genericapirequest.WithNamespace(ctx, namespace), s.roles, name)
}

// ClusterRole implements rbac.Source.
func (s *storedSource) ClusterRole(ctx context.Context, name string) (*rbacv1.ClusterRole, error) {
	return get[*rbacv1.ClusterRole](genericapirequest.WithNamespace(ctx, ""), s.clusterRoles, name)
}

// RoleBindings implements rbac.Source with all bindings of the namespace.
func (s *storedSource) RoleBindings(ctx context.Context, namespace string, _ user.Info) ([]*rbacv1.RoleBinding, error) {
	list, err := list[*rbacv1.RoleBindingList](genericapirequest.WithNamespace(ctx, namespace), s.roleBindings)
	if err != nil {
		return nil, err
	}
	return pointers(list.Items), nil
}

// ClusterRoleBindings implements rbac.Source with all bindings.
func (s *storedSource) ClusterRoleBindings(ctx context.Context, _ user.Info) ([]*rbacv1.ClusterRoleBinding, error) {
	list, err := list[*rbacv1.ClusterRoleBindingList](genericapirequest.WithNamespace(ctx, ""), s.clusterRoleBindings)
	if err != nil {
		return nil, err
	}
	return pointers(list.Items), nil
}

// get reads an object that is not the one of the request, so that errors have its name.
func get[O runtime.Object](ctx context.Context, store *typed.REST, name string) (O, error) {
	resource := store.DefaultQualifiedResource
	ctx = genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{APIGroup: resource.Group, Resource: resource.Resource, Name: name})
	return as[O](store.Get(ctx, name, &metav1.GetOptions{}))
}

func list[L runtime.Object](ctx context.Context, store *typed.REST) (L, error) {
	return as[L](store.List(ctx, &metainternalversion.ListOptions{}))
}

// as converts the result of a read.
func as[O runtime.Object](object runtime.Object, err error) (O, error) {
	var none O
	if err != nil {
		return none, err
	}
	typedObject, ok := object.(O)
	if !ok {
		return none, fmt.Errorf("read roles and bindings: unexpected type %T", object)
	}
	return typedObject, nil
}

func pointers[T any](items []T) []*T {
	to := make([]*T, 0, len(items))
	for i := range items {
		to = append(to, &items[i])
	}
	return to
}
