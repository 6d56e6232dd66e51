// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admissionregistration is the REST storage of admissionregistration.k8s.io.
package admissionregistration

import (
	"maps"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/registry/typed"
)

// NewGroup creates the storage of admissionregistration.k8s.io. The author of a policy must be
// authorized to read its parameters; resources finds the resource of their kind.
func NewGroup(getter generic.RESTOptionsGetter, authorizer authorizer.UnconditionalAuthorizer, resources ResourceLister) (genericapiserver.APIGroupInfo, error) {
	access := paramAccess{authorizer: authorizer, resources: resources}
	endpoints, err := typed.NewEndpoints(getter, validatingWebhooks, mutatingWebhooks, validatingPolicies(access), mutatingPolicies(access))
	if err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	bindings, err := typed.NewEndpoints(getter,
		validatingBindings(access, paramKindOf(endpoints.REST("validatingadmissionpolicies"), validatingParamKind)),
		mutatingBindings(access, paramKindOf(endpoints.REST("mutatingadmissionpolicies"), mutatingParamKind)))
	if err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	maps.Copy(endpoints, bindings)
	return endpoints.Group(admissionregistrationv1.SchemeGroupVersion), nil
}
