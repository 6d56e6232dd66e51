// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest is the map of what the group flowcontrol.apiserver.k8s.io serves.
package rest

import (
	"fmt"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/registry/flowcontrol/flowschema"
	"github.com/annex-dev/annex/pkg/registry/flowcontrol/prioritylevelconfiguration"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// StorageProvider makes the REST storage of flowcontrol.apiserver.k8s.io.
type StorageProvider struct {
	typed.Serialization
}

// NewRESTStorage returns the group.
func (p StorageProvider) NewRESTStorage(getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	info := p.GroupInfo(flowcontrolv1.GroupName)
	storage, err := p.v1Storage(getter)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, fmt.Errorf("serve %s: %w", flowcontrolv1.SchemeGroupVersion, err)
	}
	info.VersionedResourcesStorageMap[flowcontrolv1.SchemeGroupVersion.Version] = storage
	return info, nil
}

func (p StorageProvider) v1Storage(getter generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	schemas, schemaStatus, err := flowschema.NewStorage(p.Scheme, getter)
	if err != nil {
		return nil, err
	}
	levels, levelStatus, err := prioritylevelconfiguration.NewStorage(p.Scheme, getter)
	if err != nil {
		return nil, err
	}
	return map[string]rest.Storage{
		"flowschemas":                        schemas,
		"flowschemas/status":                 schemaStatus,
		"prioritylevelconfigurations":        levels,
		"prioritylevelconfigurations/status": levelStatus,
	}, nil
}
