// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package flowcontrol keeps the FlowSchemas and PriorityLevelConfigurations that
// every annex has: the mandatory ones as they must be, the suggested ones up to
// date until an administrator changes them, and those of earlier versions gone.
package flowcontrol

import (
	"context"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	flowcontrolv1client "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/controller/framework"
)

const (
	// ControllerName names the controller in logs and metrics.
	ControllerName = "flowcontrol"

	// everything is the one key there is: looking at all objects is two lists.
	everything = "everything"

	// lookAgain is how often all objects are looked at when none has changed.
	lookAgain = time.Minute
)

type (
	schemaClient = flowcontrolv1client.FlowSchemaInterface
	levelClient  = flowcontrolv1client.PriorityLevelConfigurationInterface
)

// Ensure makes all objects what they should be, once. Levels come first, so that
// no schema leads nowhere.
func Ensure(ctx context.Context, annexFlowControl flowcontrolv1client.FlowcontrolV1Interface) error {
	if err := newLevels(annexFlowControl.PriorityLevelConfigurations()).ensure(ctx); err != nil {
		return err
	}
	return newSchemas(annexFlowControl.FlowSchemas()).ensure(ctx)
}

// Config holds what the controller depends on.
type Config struct {
	AnnexFlowControl flowcontrolv1client.FlowcontrolV1Interface
	// FlowSchemas and PriorityLevels tell of changes.
	FlowSchemas, PriorityLevels cache.SharedIndexInformer
}

// Controller keeps the objects what they should be.
type Controller struct {
	queue  *framework.Queue[string]
	synced []cache.DoneChecker
}

// New returns a controller that follows the informers of config and does nothing
// before Run.
func New(config Config) (*Controller, error) {
	c := &Controller{queue: framework.NewQueue(framework.QueueConfig[string]{
		Name: ControllerName,
		Reconcile: func(ctx context.Context, _ string) (framework.Result, error) {
			return framework.Result{RequeueAfter: lookAgain}, Ensure(ctx, config.AnnexFlowControl)
		},
	})}
	var err error
	c.synced, err = framework.AddEventHandlers(
		framework.Source{Name: "FlowSchemas", Informer: config.FlowSchemas, Handler: c.handler()},
		framework.Source{Name: "PriorityLevelConfigurations", Informer: config.PriorityLevels, Handler: c.handler()},
	)
	return c, err
}

// Run keeps the objects until ctx is done.
func (c *Controller) Run(ctx context.Context, workers int) {
	c.queue.Add(everything)
	c.queue.Run(ctx, workers, c.synced...)
}

// handler has everything looked at when an object is changed or deleted, but for
// its status, which servers write.
func (c *Controller) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			old, updated := before.(metav1.Object), after.(metav1.Object)
			if old.GetGeneration() != updated.GetGeneration() || !maps.Equal(old.GetAnnotations(), updated.GetAnnotations()) {
				c.queue.Add(everything)
			}
		},
		DeleteFunc: func(any) { c.queue.Add(everything) },
	}
}
