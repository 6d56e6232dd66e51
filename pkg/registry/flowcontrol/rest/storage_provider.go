// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest maps the resources of flowcontrol.apiserver.k8s.io to their REST storage.
package rest

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/registry/generic"
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
	return p.NewGroup(flowcontrolv1.SchemeGroupVersion, getter, flowschema.Resource(p.Scheme), prioritylevelconfiguration.Resource(p.Scheme))
}
