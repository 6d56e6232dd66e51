// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest maps the resources of hosting.annex.dev to their REST storage.
package rest

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/registry/hosting/backup"
	"github.com/annex-dev/annex/pkg/registry/hosting/hostedresource"
	"github.com/annex-dev/annex/pkg/registry/hosting/store"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// StorageProvider creates the REST storage of the hosting group.
type StorageProvider struct {
	typed.Serialization
	// Backups accesses the etcds of Stores.
	Backups backup.Backend
}

// NewRESTStorage returns the group. Its kinds have no Protocol Buffers encoding, so the
// getter must store them as JSON.
func (p StorageProvider) NewRESTStorage(getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	stores, err := store.NewStorage(p.Scheme, getter)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	hostedResources, err := hostedresource.NewStorage(p.Scheme, getter)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	stores.Store.HoldsResources(hostedResources.HostedResource)
	info := p.GroupInfo(v1alpha1.SchemeGroupVersion, map[string]rest.Storage{
		"stores":                  stores.Store,
		"stores/status":           stores.Status,
		"stores/backup":           backup.NewStore(stores.Store, p.Backups),
		"stores/restore":          backup.NewRestore(stores.Store, hostedResources.HostedResource, p.Backups),
		"hostedresources":         hostedResources.HostedResource,
		"hostedresources/status":  hostedResources.Status,
		"hostedresources/binding": hostedresource.NewBindingREST(p.Scheme, hostedResources.HostedResource.REST, stores.Store),
		"hostedresources/backup":  backup.NewResource(hostedResources.HostedResource, p.Backups),
	})
	info.NegotiatedSerializer = withoutProtobuf{info.NegotiatedSerializer}
	return info, nil
}

// withoutProtobuf offers all media types except Protocol Buffers, so that clients that prefer
// it and accept JSON receive JSON instead of an error.
type withoutProtobuf struct {
	runtime.NegotiatedSerializer
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s withoutProtobuf) SupportedMediaTypes() []runtime.SerializerInfo {
	var infos []runtime.SerializerInfo
	for _, info := range s.NegotiatedSerializer.SupportedMediaTypes() {
		if info.MediaType != runtime.ContentTypeProtobuf {
			infos = append(infos, info)
		}
	}
	return infos
}
