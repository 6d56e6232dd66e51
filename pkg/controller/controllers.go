// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller runs annex's controllers. Each has a package of its own. The
// tables of them are in common.go, standalone.go and aggregated.go.
package controller

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/controller/bootstrap"
	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
)

// controller is made by each entry of a table.
type controller interface {
	// Run works until ctx is done and returns once all its goroutines have.
	Run(ctx context.Context, workers int)
}

// descriptor is an entry of a table.
type descriptor struct {
	name string
	// workers is how many keys are reconciled at the same time.
	workers int
	// new makes the controller, or nil if the configuration does not want it.
	new func(Config) (controller, error)
}

// Controllers are all controllers of one leadership, ready to run.
type Controllers struct {
	config     Config
	leadership leadership
	entries    []entry
}

// entry is a controller that was made, and how many workers it gets.
type entry struct {
	controller controller
	workers    int
}

// New makes all controllers for one leadership. They do nothing before Run, which
// must follow: it removes the handlers that New registered with the server's
// informers and the usage tracker.
func New(config Config) (*Controllers, error) {
	c := &Controllers{}
	if err := c.build(config); err != nil {
		c.leadership.end()
		return nil, err
	}
	return c, nil
}

func (c *Controllers) build(config Config) error {
	var err error
	if c.config, err = config.forLeadership(&c.leadership); err != nil {
		return err
	}
	for _, d := range append(commonControllers(), c.config.Mode.controllers()...) {
		made, err := d.new(c.config)
		if err != nil {
			return fmt.Errorf("create the %s controller: %w", d.name, err)
		}
		if made == nil {
			continue
		}
		if handler, ok := made.(usage.Handler); ok {
			c.leadership.onEnd(config.Usage.AddHandler(handler))
		}
		if handler, ok := made.(usage.StoreHandler); ok {
			c.leadership.onEnd(config.Usage.AddStoreHandler(handler))
		}
		c.entries = append(c.entries, entry{controller: made, workers: d.workers})
	}
	return nil
}

// Bootstrap creates the objects that every annex has, and returns once they exist
// or, with an error, when ctx is done before. It waits for the server to respond.
func Bootstrap(ctx context.Context, config Config) error {
	objects := bootstrap.Config{
		AnnexStores:  config.AnnexHosting.HostingV1alpha1().Stores(),
		DefaultStore: config.DefaultStore,
	}
	config.Mode.bootstrap(config, &objects)
	return bootstrap.Run(ctx, objects)
}

// Run starts the informers of the leadership and runs all controllers until ctx is
// done. It returns once everything it started has stopped, and is called once.
func (c *Controllers) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), "controllers"))
	defer c.leadership.end()
	if err := c.config.events.StartRecordingToSinkWithContext(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Events are not recorded")
	}
	waitForInformers := c.config.Mode.startInformers(ctx)
	defer waitForInformers()

	var running sync.WaitGroup
	defer running.Wait()
	for _, e := range c.entries {
		running.Go(func() { e.controller.Run(ctx, e.workers) })
	}
}
