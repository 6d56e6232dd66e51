// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// Authorization says who may act: the group system:masters, and behind a main
// cluster whomever that allows.
type Authorization struct{}

// NewAuthorization returns the only choice there is.
func NewAuthorization() *Authorization { return &Authorization{} }

// ApplyTo makes generic authorize requests; what nothing allows is refused.
// delegated asks the main cluster, or is nil.
func (o *Authorization) ApplyTo(generic *genericapiserver.Config, delegated authorizer.Authorizer) error {
	health, err := path.NewAuthorizer(openPaths)
	if err != nil {
		return fmt.Errorf("authorize the health endpoints: %w", err)
	}
	authorizers := []union.NamedAuthorizer{
		{AuthorizerName: "PrivilegedGroup", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
		{AuthorizerName: "HealthEndpoints", Authorizer: health},
	}
	if delegated != nil {
		authorizers = append(authorizers, union.NamedAuthorizer{AuthorizerName: "MainCluster", Authorizer: delegated})
	}
	if generic.Authorization.Authorizer, err = union.New(authorizers...); err != nil {
		return fmt.Errorf("combine authorizers: %w", err)
	}
	return nil
}
