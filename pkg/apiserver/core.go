// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apiserver/scheme"
	admissionregistrationrest "github.com/annex-dev/annex/pkg/registry/admissionregistration/rest"
	authenticationrest "github.com/annex-dev/annex/pkg/registry/authentication/rest"
	authorizationrest "github.com/annex-dev/annex/pkg/registry/authorization/rest"
	coordinationrest "github.com/annex-dev/annex/pkg/registry/coordination/rest"
	corerest "github.com/annex-dev/annex/pkg/registry/core/rest"
	eventsrest "github.com/annex-dev/annex/pkg/registry/events/rest"
	flowcontrolrest "github.com/annex-dev/annex/pkg/registry/flowcontrol/rest"
	hostingrest "github.com/annex-dev/annex/pkg/registry/hosting/rest"
	rbacrest "github.com/annex-dev/annex/pkg/registry/rbac/rest"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// StorageProvider builds the storage of one API group.
type StorageProvider interface {
	// NewRESTStorage takes from getter where and how objects are stored.
	NewRESTStorage(getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error)
}

// coreResourceConfig lists the versions that are served unless --runtime-config
// says otherwise. A version missing here is not served; behind a main cluster
// the Kubernetes kinds are that cluster's.
func coreResourceConfig(behindMain bool) *serverstorage.ResourceConfig {
	config := serverstorage.NewResourceConfig()
	config.EnableVersions(hostingv1alpha1.SchemeGroupVersion)
	if !behindMain {
		config.EnableVersions(
			corev1.SchemeGroupVersion,
			authenticationv1.SchemeGroupVersion,
			authorizationv1.SchemeGroupVersion,
			coordinationv1.SchemeGroupVersion,
			eventsv1.SchemeGroupVersion,
			rbacv1.SchemeGroupVersion,
			admissionregistrationv1.SchemeGroupVersion,
			flowcontrolv1.SchemeGroupVersion,
		)
	}
	return config
}

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
	for _, provider := range c.storageProviders() {
		info, err := provider.NewRESTStorage(c.generic.RESTOptionsGetter)
		if err != nil {
			return nil, nil, fmt.Errorf("create the storage of %T: %w", provider, err)
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

// storageProviders are those of the Kubernetes kinds, where they are annex's to
// serve, and of its own.
func (c CompletedConfig) storageProviders() []StorageProvider {
	kinds := typed.Serialization{Scheme: scheme.Scheme, ParameterCodec: scheme.ParameterCodec, Codecs: scheme.Codecs}
	own := hostingrest.StorageProvider{Serialization: kinds, Backups: c.newBackups()}
	if c.extra.behindMain() {
		return []StorageProvider{own}
	}
	return []StorageProvider{
		corerest.StorageProvider{Serialization: kinds, EventTTL: c.extra.EventTTL, Tokens: c.extra.Tokens},
		eventsrest.StorageProvider{Serialization: kinds, TTL: c.extra.EventTTL},
		authenticationrest.StorageProvider{Serialization: kinds, Authenticator: c.generic.Authentication.Authenticator, Audiences: c.generic.Authentication.APIAudiences},
		authorizationrest.StorageProvider{Serialization: kinds, Authorizer: c.generic.Authorization.Authorizer, Rules: c.generic.RuleResolver},
		coordinationrest.StorageProvider{Serialization: kinds},
		rbacrest.StorageProvider{Serialization: kinds, Authorizer: c.generic.Authorization.Authorizer},
		admissionregistrationrest.StorageProvider{Serialization: kinds, Authorizer: c.generic.Authorization.Authorizer, Resources: c.extra.Resources},
		flowcontrolrest.StorageProvider{Serialization: kinds},
		own,
	}
}

// dropDisabled removes what --runtime-config switched off.
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
