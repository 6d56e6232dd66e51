// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest is the map of what the group admissionregistration.k8s.io serves.
package rest

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// StorageProvider makes the REST storage of admissionregistration.k8s.io.
type StorageProvider struct {
	Scheme         *runtime.Scheme
	ParameterCodec runtime.ParameterCodec
	Codecs         serializer.CodecFactory
}

// NewRESTStorage returns the group.
func (p StorageProvider) NewRESTStorage(_ generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	info := genericapiserver.NewDefaultAPIGroupInfo(admissionregistrationv1.GroupName, p.Scheme, p.ParameterCodec, p.Codecs)
	info.VersionedResourcesStorageMap[admissionregistrationv1.SchemeGroupVersion.Version] = map[string]rest.Storage{}
	return info, nil
}
