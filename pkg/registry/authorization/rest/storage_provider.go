// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest maps the resources of authorization.k8s.io to their REST storage.
package rest

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/registry/authorization/accessreview"
	"github.com/annex-dev/annex/pkg/registry/authorization/rulesreview"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// StorageProvider creates the REST storage of authorization.k8s.io.
type StorageProvider struct {
	typed.Serialization

	// Authorizer answers access reviews, Rules list the rights of a user.
	Authorizer authorizer.Authorizer
	Rules      authorizer.RuleResolver
}

// NewRESTStorage implements apiserver.StorageProvider.
func (p StorageProvider) NewRESTStorage(_ generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	return p.GroupInfo(authorizationv1.SchemeGroupVersion, map[string]rest.Storage{
		"subjectaccessreviews":      accessreview.NewSubjectREST(p.Authorizer),
		"localsubjectaccessreviews": accessreview.NewLocalREST(p.Authorizer),
		"selfsubjectaccessreviews":  accessreview.NewSelfREST(p.Authorizer),
		"selfsubjectrulesreviews":   rulesreview.NewREST(p.Rules),
	}), nil
}
