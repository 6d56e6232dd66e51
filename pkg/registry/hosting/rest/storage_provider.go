// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest is the map of what the hosting group serves.
package rest

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/apis/hosting"
	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/registry/hosting/backup"
	"github.com/annex-dev/annex/pkg/registry/hosting/hostedresource"
	"github.com/annex-dev/annex/pkg/registry/hosting/store"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// StorageProvider makes the REST storage of the hosting group.
type StorageProvider struct {
	typed.Serialization
	// Backups reaches the etcds that backups are read from and restored to.
	Backups backup.Backend
}

// NewRESTStorage returns the group, to be installed under /apis. Its kinds have
// no Protocol Buffers form, so the getter must store them as JSON.
func (p StorageProvider) NewRESTStorage(getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	info := p.GroupInfo(hosting.GroupName)
	info.NegotiatedSerializer = withoutProtobuf{info.NegotiatedSerializer}
	storage, err := p.v1alpha1Storage(getter)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, fmt.Errorf("serve %s: %w", v1alpha1.SchemeGroupVersion, err)
	}
	info.VersionedResourcesStorageMap[v1alpha1.SchemeGroupVersion.Version] = storage
	return info, nil
}

func (p StorageProvider) v1alpha1Storage(getter generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	stores, err := store.NewStorage(p.Scheme, getter)
	if err != nil {
		return nil, err
	}
	hostedResources, err := hostedresource.NewStorage(p.Scheme, getter)
	if err != nil {
		return nil, err
	}
	stores.Store.HoldsResources(hostedResources.HostedResource)
	return map[string]rest.Storage{
		"stores":                  stores.Store,
		"stores/status":           stores.Status,
		"stores/backup":           backup.NewStore(stores.Store, p.Backups),
		"stores/restore":          backup.NewRestore(stores.Store, hostedResources.HostedResource, p.Backups),
		"hostedresources":         hostedResources.HostedResource,
		"hostedresources/status":  hostedResources.Status,
		"hostedresources/binding": hostedresource.NewBindingREST(p.Scheme, hostedResources.HostedResource.REST, stores.Store),
		"hostedresources/backup":  backup.NewResource(hostedResources.HostedResource, p.Backups),
	}, nil
}

// withoutProtobuf offers every media type but Protocol Buffers. A client that
// would rather have that, but takes JSON too, then gets JSON, not an error.
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
