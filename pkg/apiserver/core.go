// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
)

func (c CompletedConfig) newCore(delegate genericapiserver.DelegationTarget) (*genericapiserver.GenericAPIServer, error) {
	server, err := c.generic.Complete(c.extra.Informers).New("annex-core", delegate)
	if err != nil {
		return nil, err
	}
	legacy, groups, err := c.apiGroups()
	if err != nil {
		return nil, err
	}
	if legacy != nil {
		if err := server.InstallLegacyAPIGroup(genericapiserver.DefaultLegacyAPIPrefix, legacy); err != nil {
			return nil, fmt.Errorf("install the API group v1: %w", err)
		}
	}
	if err := server.InstallAPIGroups(groups...); err != nil {
		return nil, fmt.Errorf("install API groups: %w", err)
	}
	installOpenAPI(server, c.generic)
	if c.extra.Discovery != nil {
		c.extra.Discovery.Install(server.Handler.NonGoRestfulMux)
	}
	if err := server.AddPostStartHook("annex-routes", c.startRouting); err != nil {
		return nil, err
	}
	// Readiness waits for the watch caches of these kinds; upstream leaves it
	// to the embedding server to add the hook.
	return server, server.AddPostStartHook("storage-readiness", server.StorageReadinessHook.Hook)
}

// apiGroups builds the storage of every group that is served.
func (c CompletedConfig) apiGroups() (legacy *genericapiserver.APIGroupInfo, groups []*genericapiserver.APIGroupInfo, err error) {
	for _, group := range c.extra.Groups {
		info, err := group.newStorage(c)
		if err != nil {
			return nil, nil, fmt.Errorf("create the storage of %s: %w", group.version, err)
		}
		dropDisabled(&info, c.generic.MergedResourceConfig)
		switch {
		case info.PrioritizedVersions[0].Group == "":
			legacy = &info
		case len(info.VersionedResourcesStorageMap) > 0:
			groups = append(groups, &info)
		}
	}
	return legacy, groups, nil
}

// dropDisabled removes the resources that --runtime-config disables.
func dropDisabled(info *genericapiserver.APIGroupInfo, config serverstorage.APIResourceConfigSource) {
	group := info.PrioritizedVersions[0].Group
	for version, storage := range info.VersionedResourcesStorageMap {
		for path := range storage {
			resource, _, _ := strings.Cut(path, "/")
			if !config.ResourceEnabled(schema.GroupVersionResource{Group: group, Version: version, Resource: resource}) {
				delete(storage, path)
			}
		}
		if len(storage) == 0 {
			delete(info.VersionedResourcesStorageMap, version)
		}
	}
}
