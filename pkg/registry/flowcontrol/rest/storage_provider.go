// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest maps the resources of flowcontrol.apiserver.k8s.io to their REST storage.
package rest

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/registry/flowcontrol/flowschema"
	"github.com/annex-dev/annex/pkg/registry/flowcontrol/prioritylevelconfiguration"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// StorageProvider creates the REST storage of flowcontrol.apiserver.k8s.io.
type StorageProvider struct {
	typed.Serialization
}

// NewRESTStorage implements apiserver.StorageProvider.
func (p StorageProvider) NewRESTStorage(getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	schemas, schemaStatus, err := flowschema.NewStorage(p.Scheme, getter)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	levels, levelStatus, err := prioritylevelconfiguration.NewStorage(p.Scheme, getter)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	return p.GroupInfo(flowcontrolv1.SchemeGroupVersion, map[string]rest.Storage{
		"flowschemas":                        schemas,
		"flowschemas/status":                 schemaStatus,
		"prioritylevelconfigurations":        levels,
		"prioritylevelconfigurations/status": levelStatus,
	}), nil
}
