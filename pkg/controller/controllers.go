// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller runs annex's controllers. Each has a package of its own. common.go
// lists those of both modes; pkg/standalone and pkg/aggregated list their own.
package controller

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
)

// Controller is made by a Descriptor.
type Controller interface {
	// Run works until ctx is done and returns once all its goroutines have.
	Run(ctx context.Context, workers int)
}

// Descriptor lists a controller.
type Descriptor struct {
	// Name is used in errors.
	Name string
	// Workers reconcile that many keys at the same time.
	Workers int
	// New makes the controller, or returns nil if the configuration turns it off.
	New func(Config) (Controller, error)
}

// Controllers are all controllers of one leadership, ready to run.
type Controllers struct {
	config     Config
	leadership Leadership
	// run has a function for each controller.
	run []func(ctx context.Context)
}

// New makes all controllers for one leadership. They do nothing before Run, which
// must follow: it removes the handlers that New registered with the server's
// informers and the usage tracker.
func New(config Config) (*Controllers, error) {
	c := &Controllers{}
	if err := c.build(config); err != nil {
		c.leadership.End()
		return nil, err
	}
	return c, nil
}

func (c *Controllers) build(config Config) error {
	var err error
	if c.config, err = config.forLeadership(&c.leadership); err != nil {
		return err
	}
	for _, d := range append(commonControllers(), c.config.Mode.Table()...) {
		made, err := d.New(c.config)
		if err != nil {
			return fmt.Errorf("create the %s controller: %w", d.Name, err)
		}
		if made == nil {
			continue
		}
		if handler, ok := made.(usage.Handler); ok {
			c.leadership.OnEnd(config.Usage.AddHandler(handler))
		}
		if handler, ok := made.(usage.StoreHandler); ok {
			c.leadership.OnEnd(config.Usage.AddStoreHandler(handler))
		}
		c.run = append(c.run, func(ctx context.Context) { made.Run(ctx, d.Workers) })
	}
	return nil
}

// Run starts the informers of the leadership and runs all controllers until ctx is
// done. It returns once everything it started has stopped, and is called once.
func (c *Controllers) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), "controllers"))
	defer c.leadership.End()
	if err := c.config.events.StartRecordingToSinkWithContext(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Events are not recorded")
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { c.config.Mode.RunInformers(ctx) })
	for _, run := range c.run {
		running.Go(func() { run(ctx) })
	}
}
