// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest maps the resources of authentication.k8s.io to their REST storage.
package rest

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/registry/typed"
)

// StorageProvider creates the REST storage of authentication.k8s.io.
type StorageProvider struct {
	typed.Serialization

	// Authenticator authenticates the tokens of TokenReviews.
	Authenticator authenticator.Request
	// Audiences are the default audiences of a TokenReview.
	Audiences authenticator.Audiences
}

// NewRESTStorage implements apiserver.StorageProvider.
func (p StorageProvider) NewRESTStorage(_ generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	return p.GroupInfo(authenticationv1.SchemeGroupVersion, map[string]rest.Storage{
		"tokenreviews":       newTokenReviewREST(p.Authenticator, p.Audiences),
		"selfsubjectreviews": newSelfSubjectReviewREST(),
	}), nil
}
