// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest maps the resources of admissionregistration.k8s.io to their REST storage.
package rest

import (
	"maps"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/registry/admissionregistration/admissionpolicy"
	"github.com/annex-dev/annex/pkg/registry/admissionregistration/webhookconfiguration"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// StorageProvider creates the REST storage of admissionregistration.k8s.io.
type StorageProvider struct {
	typed.Serialization

	// Authorizer checks that the author of a policy may read its parameters, whose kind is
	// found in Resources.
	Authorizer authorizer.UnconditionalAuthorizer
	Resources  admissionpolicy.ResourceLister
}

// NewRESTStorage implements apiserver.StorageProvider.
func (p StorageProvider) NewRESTStorage(getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	policies, err := admissionpolicy.NewStorage(p.Scheme, getter, admissionpolicy.ParamAccess{Authorizer: p.Authorizer, Resources: p.Resources})
	if err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	info, err := p.NewGroup(admissionregistrationv1.SchemeGroupVersion, getter,
		webhookconfiguration.ValidatingResource(p.Scheme), webhookconfiguration.MutatingResource(p.Scheme))
	if err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	maps.Copy(info.VersionedResourcesStorageMap[admissionregistrationv1.SchemeGroupVersion.Version], map[string]rest.Storage{
		"validatingadmissionpolicies":        policies.Validating,
		"validatingadmissionpolicies/status": policies.ValidatingStatus,
		"validatingadmissionpolicybindings":  policies.ValidatingBinding,
		"mutatingadmissionpolicies":          policies.Mutating,
		"mutatingadmissionpolicybindings":    policies.MutatingBinding,
	})
	return info, nil
}
