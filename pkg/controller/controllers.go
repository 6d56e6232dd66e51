// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller runs annex's controllers. This file holds the table of them;
// each has a package of its own.
package controller

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/controller/bootstrap"
	"github.com/annex-dev/annex/pkg/controller/hostedresource"
	"github.com/annex-dev/annex/pkg/controller/namespace"
	"github.com/annex-dev/annex/pkg/controller/store"
	"github.com/annex-dev/annex/pkg/storage/usage"
)

// controller is what every entry of the table makes.
type controller interface {
	// Run works until ctx is done and returns once all its goroutines have.
	Run(ctx context.Context, workers int)
}

// descriptor is an entry of the table.
type descriptor struct {
	name string
	// workers is how many keys are reconciled at the same time.
	workers int
	new     func(Config) (controller, error)
}

// descriptors is the table of controllers. They are independent of each other,
// so their order does not matter.
func descriptors() []descriptor {
	return []descriptor{
		// Emptying a namespace is many requests, one after the other.
		{namespace.ControllerName, 5, newNamespace},
		// Five hundred definitions may all be found at a start.
		{hostedresource.ControllerName, 4, newHostedResource},
		// There is one Store that anything happens to.
		{store.ControllerName, 1, newStore},
	}
}

func newNamespace(config Config) (controller, error) {
	return namespace.New(namespace.Config{
		AnnexNamespaces:           config.AnnexKube.CoreV1().Namespaces(),
		AnnexMetadata:             config.AnnexMetadata,
		Discover:                  config.AnnexKube.Discovery().ServerPreferredNamespacedResourcesWithContext,
		Namespaces:                config.AnnexInformers.Core().V1().Namespaces(),
		CustomResourceDefinitions: config.AnnexAPIExtensionsInformers.Apiextensions().V1().CustomResourceDefinitions(),
		SettlePeriod:              config.NamespaceSettlePeriod,
	})
}

func newHostedResource(config Config) (controller, error) {
	return hostedresource.New(hostedresource.Config{
		AnnexHostedResources:      config.AnnexHosting.HostingV1alpha1().HostedResources(),
		AnnexDefinitions:          config.AnnexAPIExtensions.ApiextensionsV1().CustomResourceDefinitions(),
		HostedResources:           config.AnnexHostingInformers.Hosting().V1alpha1().HostedResources(),
		Stores:                    config.AnnexHostingInformers.Hosting().V1alpha1().Stores(),
		CustomResourceDefinitions: config.AnnexAPIExtensionsInformers.Apiextensions().V1().CustomResourceDefinitions(),
		Usage: func(resource schema.GroupResource) (objects, bytes int64, known bool) {
			of := config.Usage.Usage(resource)
			return of.Objects, of.Bytes, config.Usage.HasSynced()
		},
	})
}

func newStore(config Config) (controller, error) {
	return store.New(store.Config{
		AnnexStores: config.AnnexHosting.HostingV1alpha1().Stores(),
		Stores:      config.AnnexHostingInformers.Hosting().V1alpha1().Stores(),
		DefaultEtcd: store.Etcd{Client: config.AnnexEtcd, Endpoints: config.EtcdEndpoints},
		Objects: func() (objects int64, known bool) {
			return config.Usage.Total().Objects, config.Usage.HasSynced()
		},
	})
}

// Controllers are all controllers, ready to run.
type Controllers struct {
	config  Config
	entries []entry
}

// entry is a controller that was made, and how many workers it gets.
type entry struct {
	controller controller
	workers    int
}

// New makes all controllers. They do nothing before Run, but those that follow
// usage are registered with the tracker: New must be called before the tracker
// runs and before the informers are shut down.
func New(config Config) (*Controllers, error) {
	c := &Controllers{config: config}
	for _, d := range descriptors() {
		made, err := d.new(config)
		if err != nil {
			return nil, fmt.Errorf("making the %s controller: %w", d.name, err)
		}
		if handler, ok := made.(usage.Handler); ok {
			config.Usage.AddHandler(handler)
		}
		c.entries = append(c.entries, entry{controller: made, workers: d.workers})
	}
	return c, nil
}

// Bootstrap makes the objects that every annex has, and returns once they exist
// or, with an error, when ctx is done before. It needs a server that answers and
// waits for one.
func (c *Controllers) Bootstrap(ctx context.Context) error {
	return bootstrap.Run(ctx, bootstrap.Config{
		AnnexNamespaces: c.config.AnnexKube.CoreV1().Namespaces(),
		AnnexStores:     c.config.AnnexHosting.HostingV1alpha1().Stores(),
		DefaultStore:    c.config.DefaultStore,
	})
}

// Run starts the informers, those that run already excepted, and runs all
// controllers until ctx is done. It returns once everything it started has
// stopped; informers that somebody else started are somebody else's.
func (c *Controllers) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), "controllers"))
	stopInformers := c.config.startInformers(ctx)
	defer stopInformers()

	var running sync.WaitGroup
	defer running.Wait()
	for _, e := range c.entries {
		running.Go(func() { e.controller.Run(ctx, e.workers) })
	}
}
