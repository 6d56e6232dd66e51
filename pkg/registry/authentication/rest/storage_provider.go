// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest is the map of what the group authentication.k8s.io serves.
package rest

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/registry/authentication/selfsubjectreview"
	"github.com/annex-dev/annex/pkg/registry/authentication/tokenreview"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// StorageProvider makes the REST storage of authentication.k8s.io.
type StorageProvider struct {
	typed.Serialization

	// Authenticator authenticates the tokens of TokenReviews.
	Authenticator authenticator.Request
	// Audiences are the names that annex has to issuers of tokens.
	Audiences authenticator.Audiences
}

// NewRESTStorage returns the group.
func (p StorageProvider) NewRESTStorage(_ generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	info := p.GroupInfo(authenticationv1.GroupName)
	info.VersionedResourcesStorageMap[authenticationv1.SchemeGroupVersion.Version] = map[string]rest.Storage{
		"tokenreviews":       tokenreview.NewREST(p.Authenticator, p.Audiences),
		"selfsubjectreviews": selfsubjectreview.NewREST(),
	}
	return info, nil
}
