// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest is the map of what the group rbac.authorization.k8s.io serves.
package rest

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/registry/rbac/escalation"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/standalone/authorization/rbac"
)

// StorageProvider makes the REST storage of rbac.authorization.k8s.io.
type StorageProvider struct {
	typed.Serialization

	// Authorizer knows who may give more rights than he has.
	Authorizer authorizer.UnconditionalAuthorizer
}

// NewRESTStorage returns the group.
func (p StorageProvider) NewRESTStorage(getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	info := p.GroupInfo(rbacv1.GroupName)
	storage, err := p.storage(getter)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, fmt.Errorf("serve %s: %w", rbacv1.SchemeGroupVersion, err)
	}
	info.VersionedResourcesStorageMap[rbacv1.SchemeGroupVersion.Version] = storage
	return info, nil
}

func (p StorageProvider) storage(getter generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	var stored storedSource
	var err error
	if stored.roles, err = newRoles(p.Scheme, getter); err != nil {
		return nil, err
	}
	if stored.clusterRoles, err = newClusterRoles(p.Scheme, getter); err != nil {
		return nil, err
	}
	if stored.roleBindings, err = newRoleBindings(p.Scheme, getter); err != nil {
		return nil, err
	}
	if stored.clusterRoleBindings, err = newClusterRoleBindings(p.Scheme, getter); err != nil {
		return nil, err
	}
	guard := escalation.Guard{Authorizer: p.Authorizer, Rights: rbac.Resolver{Source: &stored}}
	return map[string]rest.Storage{
		"roles":               escalation.NewREST(stored.roles, guard.Role),
		"clusterroles":        escalation.NewREST(stored.clusterRoles, guard.ClusterRole),
		"rolebindings":        escalation.NewREST(stored.roleBindings, guard.RoleBinding),
		"clusterrolebindings": escalation.NewREST(stored.clusterRoleBindings, guard.ClusterRoleBinding),
	}, nil
}
