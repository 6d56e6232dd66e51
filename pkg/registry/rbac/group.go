// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbac is the REST storage of rbac.authorization.k8s.io.
package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/registry/rbac/escalation"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/standalone/authorization/rbac"
)

// NewGroup creates the storage of rbac.authorization.k8s.io. The authorizer lets callers grant rights
// that they do not have.
func NewGroup(getter generic.RESTOptionsGetter, authorizer authorizer.UnconditionalAuthorizer) (genericapiserver.APIGroupInfo, error) {
	endpoints, err := typed.NewEndpoints(getter, roles, clusterRoles, roleBindings, clusterRoleBindings)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	guard := escalation.Guard{Authorizer: authorizer, Resolver: rbac.Resolver{Source: &storedSource{
		roles: endpoints.REST("roles"), clusterRoles: endpoints.REST("clusterroles"),
		roleBindings: endpoints.REST("rolebindings"), clusterRoleBindings: endpoints.REST("clusterrolebindings"),
	}}}
	for resource, check := range map[string]escalation.Check{
		"roles": guard.Role, "clusterroles": guard.ClusterRole, "rolebindings": guard.RoleBinding, "clusterrolebindings": guard.ClusterRoleBinding,
	} {
		endpoints[resource] = escalation.NewREST(endpoints.REST(resource), check)
	}
	return endpoints.Group(rbacv1.SchemeGroupVersion), nil
}
