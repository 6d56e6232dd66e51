// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/hostedresource"
	"github.com/annex-dev/annex/pkg/controller/migration"
	"github.com/annex-dev/annex/pkg/controller/retention"
	"github.com/annex-dev/annex/pkg/controller/staticobjects"
	"github.com/annex-dev/annex/pkg/controller/store"
	"github.com/annex-dev/annex/pkg/scheduler"
)

// commonControllers is the table of the controllers that run in both modes. They are
// independent of each other, so their order does not matter.
func commonControllers() []Descriptor {
	return []Descriptor{
		// A start may find five hundred definitions.
		{Name: hostedresource.ControllerName, Workers: 4, New: newHostedResource},
		// Placements are decided one at a time; so many are written concurrently.
		{Name: scheduler.ControllerName, Workers: 16, New: newScheduler},
		// A Store that does not respond must not delay others.
		{Name: store.ControllerName, Workers: 4, New: newStore},
		// One worker deletes for all resources, so that the cost does not grow with their number.
		{Name: retention.ControllerName, Workers: 1, New: newRetention},
		// A Migration keeps its worker until it ends, also while it waits to be confirmed.
		{Name: migration.ControllerName, Workers: 32, New: newMigration},
		// Profiles are few, and comparing one takes milliseconds.
		{Name: injectionProfilesName, Workers: 1, New: func(config Config) (Controller, error) {
			return newInjectionProfiles(config, config.recorder(injectionProfilesName))
		}},
		// A start may find hundreds of static objects, and readiness waits for them.
		{Name: staticobjects.ControllerName, Workers: 8, New: newStaticObjects},
	}
}

func newHostedResource(config Config) (Controller, error) {
	return hostedresource.New(hostedresource.Config{
		AnnexHostedResources:      config.AnnexHosting.HostingV1alpha1().HostedResources(),
		AnnexDefinitions:          config.AnnexAPIExtensions.ApiextensionsV1().CustomResourceDefinitions(),
		HostedResources:           config.AnnexHostedResourceInformer,
		Stores:                    config.AnnexStoreInformer,
		CustomResourceDefinitions: config.AnnexDefinitionInformer,
		Usage:                     config.Usage,
		Unreadable:                config.Unreadable,
		Caches:                    config.Caches,
		Events:                    config.recorder(hostedresource.ControllerName),
	})
}

func newScheduler(config Config) (Controller, error) {
	return scheduler.New(scheduler.Config{
		Name:                 hostingv1alpha1.DefaultSchedulerName,
		AnnexHostedResources: config.AnnexHosting.HostingV1alpha1().HostedResources(),
		HostedResources:      config.AnnexHostedResourceInformer,
		Stores:               config.AnnexStoreInformer,
		Migrations:           config.AnnexMigrationInformer,
		Events:               config.recorder(hostingv1alpha1.DefaultSchedulerName),
	})
}

func newStore(config Config) (Controller, error) {
	return store.New(store.Config{
		AnnexStores:          config.AnnexHosting.HostingV1alpha1().Stores(),
		AnnexHostedResources: config.AnnexHosting.HostingV1alpha1().HostedResources(),
		AnnexMigrations:      config.AnnexHosting.HostingV1alpha1().Migrations(),
		Stores:               config.AnnexStoreInformer,
		HostedResources:      config.AnnexHostedResourceInformer,
		Connection:           func(name string) (store.Connection, error) { return config.Stores.Get(name) },
		AddListener:          config.Stores.AddListener,
		Objects: func(name string) (objects int64, known bool) {
			total, known := config.Usage.Store(name)
			return total.Objects, known
		},
		Events: config.recorder("annex-stores"),
	})
}

func newRetention(config Config) (Controller, error) {
	return retention.New(retention.Config{
		AnnexHostedResources: config.AnnexHosting.HostingV1alpha1().HostedResources(),
		AnnexObjects:         retention.NewObjects(config.AnnexKube.Discovery().RESTClient, config.AnnexMetadata),
		HostedResources:      config.AnnexHostedResourceInformer,
		Definitions:          config.AnnexDefinitionInformer,
		WholeDefinition: func(name string) (*apiextensionsv1.CustomResourceDefinition, error) {
			return config.AnnexWholeDefinitions.Lister().Get(name)
		},
		Archive: config.Archive,
		Events:  config.recorder(retention.ControllerName),
	})
}

func newMigration(config Config) (Controller, error) {
	groupRuns, err := config.Mode.GroupRuns(config)
	if err != nil {
		return nil, err
	}
	return migration.New(migration.Config{
		AnnexHosting:    config.AnnexHosting.HostingV1alpha1(),
		Migrations:      config.AnnexMigrationInformer,
		HostedResources: config.AnnexHostedResourceInformer,
		Stores:          config.AnnexStoreInformer,
		NewMover:        config.NewMover,
		NewGroupRun:     groupRuns,
		Events:          config.recorder("annex-migrations"),
	})
}

func newStaticObjects(config Config) (Controller, error) {
	return staticobjects.New(staticobjects.Config{
		Sources:            config.StaticSources,
		AnnexObjects:       config.AnnexDynamic,
		AnnexMetadata:      config.AnnexMetadata,
		AnnexDiscovery:     config.AnnexKube.Discovery(),
		AnnexStaticSources: config.AnnexHosting.HostingV1alpha1().StaticSources(),
		StaticSources:      config.AnnexStaticSourceInformer,
		Definitions:        config.AnnexDefinitionInformer,
		Refused:            config.Mode.RefusedStatic(),
		Settled:            config.StaticSettled,
		Events:             config.recorder("annex-static-objects"),
	})
}
