// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest maps the resources of rbac.authorization.k8s.io to their REST storage.
package rest

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/registry/rbac/escalation"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/standalone/authorization/rbac"
)

// StorageProvider creates the REST storage of rbac.authorization.k8s.io.
type StorageProvider struct {
	typed.Serialization

	// Authorizer authorizes granting rights that the caller does not have.
	Authorizer authorizer.UnconditionalAuthorizer
}

// NewRESTStorage implements apiserver.StorageProvider.
func (p StorageProvider) NewRESTStorage(getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	var stored storedSource
	for endpoint, resource := range map[**typed.REST]typed.Resource{
		&stored.roles:               roles(p.Scheme),
		&stored.clusterRoles:        clusterRoles(p.Scheme),
		&stored.roleBindings:        roleBindings(p.Scheme),
		&stored.clusterRoleBindings: clusterRoleBindings(p.Scheme),
	} {
		var err error
		if *endpoint, err = typed.NewREST(p.Scheme, getter, resource); err != nil {
			return genericapiserver.APIGroupInfo{}, err
		}
	}
	guard := escalation.Guard{Authorizer: p.Authorizer, Resolver: rbac.Resolver{Source: &stored}}
	return p.GroupInfo(rbacv1.SchemeGroupVersion, map[string]rest.Storage{
		"roles":               escalation.NewREST(stored.roles, guard.Role),
		"clusterroles":        escalation.NewREST(stored.clusterRoles, guard.ClusterRole),
		"rolebindings":        escalation.NewREST(stored.roleBindings, guard.RoleBinding),
		"clusterrolebindings": escalation.NewREST(stored.clusterRoleBindings, guard.ClusterRoleBinding),
	}), nil
}
