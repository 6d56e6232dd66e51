// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest maps the resources of the core group to their REST storage.
package rest

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/registry/core/configmap"
	"github.com/annex-dev/annex/pkg/registry/core/event"
	"github.com/annex-dev/annex/pkg/registry/core/namespace"
	"github.com/annex-dev/annex/pkg/registry/core/resourcequota"
	"github.com/annex-dev/annex/pkg/registry/core/secret"
	"github.com/annex-dev/annex/pkg/registry/core/serviceaccount"
	"github.com/annex-dev/annex/pkg/registry/typed"
	tokens "github.com/annex-dev/annex/pkg/standalone/serviceaccount"
)

// StorageProvider creates the REST storage of the core group.
type StorageProvider struct {
	typed.Serialization

	// EventTTL is how long events are kept after their last write.
	EventTTL time.Duration
	// Tokens is the configuration of service account tokens.
	Tokens tokens.TokenConfig
}

// NewRESTStorage implements apiserver.StorageProvider.
func (p StorageProvider) NewRESTStorage(getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	namespaces, err := namespace.NewStorage(p.Scheme, getter)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	info, err := p.NewGroup(corev1.SchemeGroupVersion, getter, configmap.Resource(p.Scheme), secret.Resource(p.Scheme),
		serviceaccount.Resource(p.Scheme), event.Resource(p.Scheme, p.EventTTL), resourcequota.Resource(p.Scheme))
	if err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	endpoints := info.VersionedResourcesStorageMap[corev1.SchemeGroupVersion.Version]
	maps.Copy(endpoints, map[string]rest.Storage{
		"namespaces":            namespaces.Namespace,
		"namespaces/status":     namespaces.Status,
		"namespaces/finalize":   namespaces.Finalize,
		"serviceaccounts/token": serviceaccount.NewTokenREST(p.Tokens, endpoints["serviceaccounts"].(rest.Getter), endpoints["secrets"].(rest.Getter)),
	})
	return info, nil
}
