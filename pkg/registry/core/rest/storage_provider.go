// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest is the map of what the core group serves.
package rest

import (
	"fmt"
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

// StorageProvider makes the REST storage of the core group.
type StorageProvider struct {
	typed.Serialization

	// EventTTL is how long an event is kept after its last write.
	EventTTL time.Duration
	// Tokens says which tokens service accounts get.
	Tokens tokens.TokenConfig
}

// NewRESTStorage returns the group, to be installed under /api.
func (p StorageProvider) NewRESTStorage(getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	info := p.GroupInfo(corev1.GroupName)
	storage, err := p.v1Storage(getter)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, fmt.Errorf("serve %s: %w", corev1.SchemeGroupVersion, err)
	}
	info.VersionedResourcesStorageMap[corev1.SchemeGroupVersion.Version] = storage
	return info, nil
}

func (p StorageProvider) v1Storage(getter generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	namespaces, err := namespace.NewStorage(p.Scheme, getter)
	if err != nil {
		return nil, err
	}
	configMaps, err := configmap.NewStorage(p.Scheme, getter)
	if err != nil {
		return nil, err
	}
	secrets, err := secret.NewStorage(p.Scheme, getter)
	if err != nil {
		return nil, err
	}
	serviceAccounts, err := serviceaccount.NewStorage(p.Scheme, getter)
	if err != nil {
		return nil, err
	}
	events, err := event.NewStorage(p.Scheme, getter, p.EventTTL)
	if err != nil {
		return nil, err
	}
	quotas, quotaStatus, err := resourcequota.NewStorage(p.Scheme, getter)
	if err != nil {
		return nil, err
	}
	return map[string]rest.Storage{
		"namespaces":            namespaces.Namespace,
		"namespaces/status":     namespaces.Status,
		"namespaces/finalize":   namespaces.Finalize,
		"configmaps":            configMaps,
		"secrets":               secrets,
		"serviceaccounts":       serviceAccounts,
		"serviceaccounts/token": serviceaccount.NewTokenREST(p.Tokens, serviceAccounts, secrets),
		"events":                events,
		"resourcequotas":        quotas,
		"resourcequotas/status": quotaStatus,
	}, nil
}
