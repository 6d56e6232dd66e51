// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"
)

// subjectIndex finds bindings by their subjects, so that the cost of a request depends on
// the caller's bindings, not on all bindings.
const subjectIndex = "annex.dev/rbac-subject"

// informerSource is a Source on informers.
type informerSource struct {
	roles               rbaclisters.RoleLister
	clusterRoles        rbaclisters.ClusterRoleLister
	roleBindings        cache.Indexer
	clusterRoleBindings cache.Indexer
}

var _ Source = informerSource{}

func newInformerSource(informers rbacinformers.Interface) (source informerSource, hasSynced func() bool, err error) {
	roles, clusterRoles := informers.Roles(), informers.ClusterRoles()
	roleBindings, clusterRoleBindings := informers.RoleBindings().Informer(), informers.ClusterRoleBindings().Informer()
	if err := roleBindings.AddIndexers(cache.Indexers{subjectIndex: roleBindingKeys}); err != nil {
		return informerSource{}, nil, fmt.Errorf("index role bindings by subject: %w", err)
	}
	if err := clusterRoleBindings.AddIndexers(cache.Indexers{subjectIndex: clusterRoleBindingKeys}); err != nil {
		return informerSource{}, nil, fmt.Errorf("index cluster role bindings by subject: %w", err)
	}
	rolesInformer, clusterRolesInformer := roles.Informer(), clusterRoles.Informer()
	hasSynced = func() bool {
		return rolesInformer.HasSynced() && clusterRolesInformer.HasSynced() && roleBindings.HasSynced() && clusterRoleBindings.HasSynced()
	}
	return informerSource{
		roles: roles.Lister(), clusterRoles: clusterRoles.Lister(),
		roleBindings: roleBindings.GetIndexer(), clusterRoleBindings: clusterRoleBindings.GetIndexer(),
	}, hasSynced, nil
}

// Role implements Source.
func (s informerSource) Role(_ context.Context, namespace, name string) (*rbacv1.Role, error) {
	return s.roles.Roles(namespace).Get(name)
}

// ClusterRole implements Source.
func (s informerSource) ClusterRole(_ context.Context, name string) (*rbacv1.ClusterRole, error) {
	return s.clusterRoles.Get(name)
}

// RoleBindings implements Source.
func (s informerSource) RoleBindings(_ context.Context, namespace string, u user.Info) ([]*rbacv1.RoleBinding, error) {
	return bindingsOf(s.roleBindings, namespace, u, func(binding *rbacv1.RoleBinding) []rbacv1.Subject { return binding.Subjects })
}

// ClusterRoleBindings implements Source.
func (s informerSource) ClusterRoleBindings(_ context.Context, u user.Info) ([]*rbacv1.ClusterRoleBinding, error) {
	return bindingsOf(s.clusterRoleBindings, "", u, func(binding *rbacv1.ClusterRoleBinding) []rbacv1.Subject { return binding.Subjects })
}

// bindingsOf looks up each name of a user.
func bindingsOf[B any](index cache.Indexer, namespace string, u user.Info, subjects func(B) []rbacv1.Subject) ([]B, error) {
	found, err := appendBindings(nil, index, namespace, u, subjects, userKey(namespace, u.GetName()))
	for _, group := range u.GetGroups() {
		if err != nil {
			break
		}
		found, err = appendBindings(found, index, namespace, u, subjects, groupKey(namespace, group))
	}
	return found, err
}

// appendBindings appends the bindings under a key. A binding with several subjects that
// match the user is under several keys, and is taken at its first.
func appendBindings[B any](to []B, index cache.Indexer, namespace string, u user.Info, subjects func(B) []rbacv1.Subject, key string) ([]B, error) {
	objects, err := index.ByIndex(subjectIndex, key)
	if err != nil {
		return nil, fmt.Errorf("look up bindings by subject: %w", err)
	}
	for _, object := range objects {
		binding := object.(B)
		if first := firstSubject(subjects(binding), namespace, u); first != nil && subjectKey(first, namespace) == key {
			to = append(to, binding)
		}
	}
	return to, nil
}

func roleBindingKeys(object any) ([]string, error) {
	binding, ok := object.(*rbacv1.RoleBinding)
	if !ok {
		return nil, fmt.Errorf("index role bindings: unexpected type %T", object)
	}
	return subjectKeys(binding.Subjects, binding.Namespace), nil
}

func clusterRoleBindingKeys(object any) ([]string, error) {
	binding, ok := object.(*rbacv1.ClusterRoleBinding)
	if !ok {
		return nil, fmt.Errorf("index cluster role bindings: unexpected type %T", object)
	}
	return subjectKeys(binding.Subjects, ""), nil
}

func subjectKeys(subjects []rbacv1.Subject, namespace string) []string {
	keys := make([]string, 0, len(subjects))
	for i := range subjects {
		if key := subjectKey(&subjects[i], namespace); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// subjectKey is the index key of a subject of a binding in a namespace, or empty if the
// subject matches no user. A service account is indexed as its user.
func subjectKey(subject *rbacv1.Subject, namespace string) string {
	switch subject.Kind {
	case rbacv1.UserKind:
		return userKey(namespace, subject.Name)
	case rbacv1.GroupKind:
		return groupKey(namespace, subject.Name)
	case rbacv1.ServiceAccountKind:
		if of := subjectNamespace(subject, namespace); of != "" {
			return userKey(namespace, serviceaccount.MakeUsername(of, subject.Name))
		}
	}
	return ""
}

// The name of a namespace has no slash, so keys cannot collide.
func userKey(namespace, name string) string  { return namespace + "/user/" + name }
func groupKey(namespace, name string) string { return namespace + "/group/" + name }
