// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller runs annex's controllers. The larger ones have packages of their own. common.go
// lists the controllers of both modes; pkg/standalone and pkg/aggregated list their own.
package controller

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/scheduler"
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
	config Config
	// end ends the leadership.
	end context.CancelFunc
	// run has a function for each controller, and for the informers of the leadership.
	run []func(ctx context.Context)
}

// New makes all controllers for one leadership. They do nothing before Run, which
// must follow: it removes their handlers from the server's informers.
func New(config Config) (*Controllers, error) {
	c := &Controllers{config: config}
	var leadership context.Context
	leadership, c.end = context.WithCancel(context.Background())
	c.config.events = scheduler.NewEventBroadcaster(config.Mode.Events(config))
	if err := c.build(leadership); err != nil {
		// Running is the only way to end what was made.
		done, cancel := context.WithCancel(leadership)
		cancel()
		c.runAll(done)
		return nil, err
	}
	return c, nil
}

func (c *Controllers) build(leadership context.Context) error {
	mode, err := c.config.Mode.ForLeadership(leadership, c.config)
	if err != nil {
		return err
	}
	c.config.Mode = mode
	c.run = append(c.run, mode.RunInformers)
	for _, d := range append(commonControllers(), mode.Table()...) {
		made, err := d.New(c.config)
		if err != nil {
			return fmt.Errorf("create the %s controller: %w", d.Name, err)
		}
		if made == nil {
			continue
		}
		c.run = append(c.run, func(ctx context.Context) {
			if handler, ok := made.(usage.Handler); ok {
				defer c.config.Usage.AddHandler(handler)()
			}
			if handler, ok := made.(usage.StoreHandler); ok {
				defer c.config.Usage.AddStoreHandler(handler)()
			}
			made.Run(ctx, d.Workers)
		})
	}
	return nil
}

// Run starts the informers of the leadership and runs all controllers until ctx is
// done. It returns once everything it started has stopped, and is called once.
func (c *Controllers) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), "controllers"))
	if err := c.config.events.StartRecordingToSinkWithContext(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Events are not recorded")
	}
	c.runAll(ctx)
}

func (c *Controllers) runAll(ctx context.Context) {
	defer c.end()
	defer c.config.events.Shutdown()
	var running sync.WaitGroup
	defer running.Wait()
	for _, run := range c.run {
		running.Go(func() { run(ctx) })
	}
}
