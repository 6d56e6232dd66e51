// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rest maps the resources of hosting.annex.dev to their REST storage.
package rest

import (
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/registry/hosting/backup"
	"github.com/annex-dev/annex/pkg/registry/hosting/hostedresource"
	"github.com/annex-dev/annex/pkg/registry/hosting/injectionprofile"
	"github.com/annex-dev/annex/pkg/registry/hosting/migration"
	"github.com/annex-dev/annex/pkg/registry/hosting/staticsource"
	"github.com/annex-dev/annex/pkg/registry/hosting/store"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// StorageProvider creates the REST storage of the hosting group.
type StorageProvider struct {
	typed.Serialization
	// Backups accesses the etcds of Stores.
	Backups backup.Backend
}

// NewRESTStorage returns the group.
func (p StorageProvider) NewRESTStorage(getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	stores, err := store.NewStorage(p.Scheme, getter)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	hostedResources, err := hostedresource.NewStorage(p.Scheme, getter)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	migrations, err := migration.NewStorage(p.Scheme, getter)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	injectionProfiles, err := injectionprofile.NewStorage(p.Scheme, getter)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	staticSources, err := staticsource.NewStorage(p.Scheme, getter)
	if err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	stores.Store.HoldsResources(hostedResources.HostedResource, migrations.Migration)
	return p.GroupInfo(v1alpha1.SchemeGroupVersion, map[string]rest.Storage{
		"stores":                   stores.Store,
		"stores/status":            stores.Status,
		"stores/backup":            backup.NewStore(stores.Store, p.Backups),
		"stores/restore":           backup.NewRestore(stores.Store, hostedResources.HostedResource, p.Backups),
		"hostedresources":          hostedResources.HostedResource,
		"hostedresources/status":   hostedResources.Status,
		"hostedresources/binding":  hostedresource.NewBindingREST(p.Scheme, hostedResources.HostedResource.REST, stores.Store, migrations.Migration),
		"hostedresources/backup":   backup.NewResource(hostedResources.HostedResource, p.Backups),
		"migrations":               migrations.Migration,
		"migrations/status":        migrations.Status,
		"injectionprofiles":        injectionProfiles.InjectionProfile,
		"injectionprofiles/status": injectionProfiles.Status,
		"staticsources":            staticSources.StaticSource,
		"staticsources/status":     staticSources.Status,
	}), nil
}
