// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// Authorization says who may act: the group system:masters, and nobody else.
type Authorization struct{}

// NewAuthorization returns the only choice there is.
func NewAuthorization() *Authorization { return &Authorization{} }

// ApplyTo makes generic authorize requests; what nothing allows is refused.
func (o *Authorization) ApplyTo(generic *genericapiserver.Config) error {
	health, err := path.NewAuthorizer(openPaths)
	if err != nil {
		return fmt.Errorf("authorize the health endpoints: %w", err)
	}
	generic.Authorization.Authorizer, err = union.New(
		union.NamedAuthorizer{AuthorizerName: "PrivilegedGroup", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
		union.NamedAuthorizer{AuthorizerName: "HealthEndpoints", Authorizer: health},
	)
	if err != nil {
		return fmt.Errorf("combine authorizers: %w", err)
	}
	return nil
}
