// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/controller/finalizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"

	"github.com/annex-dev/annex/pkg/apiserver/crd"
	"github.com/annex-dev/annex/pkg/storage/move"
)

// Chain is annex's chain of API servers. A request enters at the aggregator; each
// server passes unknown paths to the next.
type Chain struct {
	Aggregator *aggregatorapiserver.APIAggregator
	Core       *genericapiserver.GenericAPIServer
	Extensions *genericapiserver.GenericAPIServer
	// Definitions are the CRDs that Extensions serves.
	Definitions *crd.Informer
	// NewMover returns what moves a resource between two Stores. config has everything except
	// the Stores.
	NewMover func(from, to string, config move.Config) (*move.Mover, error)
	// NewImporter returns what moves a resource from the main cluster into a Store. config has
	// everything except the Store.
	NewImporter func(to string, config move.Config) (*move.Importer, error)
	// NewExporter returns what moves a resource from a Store to the main cluster.
	NewExporter func(from string, config move.Config) (*move.Exporter, error)

	customObjects finalizer.CRClientGetter
}

// NewChain builds the chain, the innermost server first.
func (c CompletedConfig) NewChain() (*Chain, error) {
	// 1. Not found: 404, but 503 as long as paths are still being added, so that a starting
	//    server is not taken for one without the resource.
	notFound := genericapiserver.NewEmptyDelegateWithCustomHandler(
		notfoundhandler.New(c.generic.Serializer, filters.NoMuxAndDiscoveryIncompleteKey))

	// 2. Extensions: CRDs and their objects.
	extensions, crds, customObjects, err := c.newExtensions(notFound)
	if err != nil {
		return nil, fmt.Errorf("build the extensions server: %w", err)
	}

	if c.extra.SetDefinitions != nil {
		c.extra.SetDefinitions(crds.Outlines(), crds.Whole(nil))
	}

	// 3. Core: the kinds that are compiled in.
	core, err := c.newCore(extensions)
	if err != nil {
		return nil, fmt.Errorf("build the core server: %w", err)
	}

	// 4. Aggregator: APIServices, discovery and OpenAPI of the whole.
	aggregator, err := c.newAggregator(core, crds)
	if err != nil {
		return nil, fmt.Errorf("build the aggregator: %w", err)
	}
	return &Chain{
		Aggregator: aggregator, Core: core, Extensions: extensions, Definitions: crds, customObjects: customObjects,
		NewMover: c.newMover, NewImporter: c.newImporter, NewExporter: c.newExporter,
	}, nil
}

// AddPostStartHook adds a hook that runs once the chain serves. Readiness
// waits until the hook returns.
func (c *Chain) AddPostStartHook(name string, hook genericapiserver.PostStartHookFunc) error {
	return c.Aggregator.GenericAPIServer.AddPostStartHook(name, hook)
}

// AddReadyCheck adds a check of /readyz. The other endpoints of health do not have it.
func (c *Chain) AddReadyCheck(check healthz.HealthChecker) error {
	return c.Aggregator.GenericAPIServer.AddReadyzChecks(check)
}

// AddPreShutdownHook adds a hook that runs when shutdown begins, while the chain still
// serves. Requests are rejected only after it returned.
func (c *Chain) AddPreShutdownHook(name string, hook genericapiserver.PreShutdownHookFunc) error {
	return c.Aggregator.GenericAPIServer.AddPreShutdownHook(name, hook)
}

// Run serves until ctx is done and requests in flight have ended. Only the outermost
// server runs, with the hooks and checks of the others.
func (c *Chain) Run(ctx context.Context) error {
	prepared, err := c.Aggregator.PrepareRun()
	if err != nil {
		return fmt.Errorf("prepare the aggregator: %w", err)
	}
	return prepared.Run(ctx)
}
