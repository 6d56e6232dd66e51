// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest is the map of what the group admissionregistration.k8s.io serves.
package rest

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/registry/admissionregistration/admissionpolicy"
	"github.com/annex-dev/annex/pkg/registry/admissionregistration/webhookconfiguration"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// StorageProvider makes the REST storage of admissionregistration.k8s.io.
type StorageProvider struct {
	typed.Serialization

	// Authorizer says whether who makes a policy may read its parameters, which
	// are of a kind of Resources.
	Authorizer authorizer.UnconditionalAuthorizer
	Resources  admissionpolicy.ResourceLister
}

// NewRESTStorage returns the group.
func (p StorageProvider) NewRESTStorage(getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	info := p.GroupInfo(admissionregistrationv1.GroupName)
	storage, err := p.storage(getter)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, fmt.Errorf("serve %s: %w", admissionregistrationv1.SchemeGroupVersion, err)
	}
	info.VersionedResourcesStorageMap[admissionregistrationv1.SchemeGroupVersion.Version] = storage
	return info, nil
}

func (p StorageProvider) storage(getter generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	validating, err := webhookconfiguration.NewValidatingStorage(p.Scheme, getter)
	if err != nil {
		return nil, err
	}
	mutating, err := webhookconfiguration.NewMutatingStorage(p.Scheme, getter)
	if err != nil {
		return nil, err
	}
	policies, err := admissionpolicy.NewStorage(p.Scheme, getter, admissionpolicy.ParamAccess{Authorizer: p.Authorizer, Resources: p.Resources})
	if err != nil {
		return nil, err
	}
	return map[string]rest.Storage{
		"validatingwebhookconfigurations":    validating,
		"mutatingwebhookconfigurations":      mutating,
		"validatingadmissionpolicies":        policies.Validating,
		"validatingadmissionpolicies/status": policies.ValidatingStatus,
		"validatingadmissionpolicybindings":  policies.ValidatingBinding,
		"mutatingadmissionpolicies":          policies.Mutating,
		"mutatingadmissionpolicybindings":    policies.MutatingBinding,
	}, nil
}
