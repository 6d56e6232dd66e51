// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package flowcontrol maintains the FlowSchemas and PriorityLevelConfigurations that
// every annex has: it restores the mandatory ones, updates the suggested ones until an
// administrator changes them, and deletes those of earlier versions.
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

	// everything is the only key: a reconcile lists all objects.
	everything = "everything"

	// lookAgain is the interval of reconciles without an event.
	lookAgain = time.Minute
)

type (
	schemaClient = flowcontrolv1client.FlowSchemaInterface
	levelClient  = flowcontrolv1client.PriorityLevelConfigurationInterface
)

// Ensure reconciles all objects once. Levels come first, because schemas refer to them.
func Ensure(ctx context.Context, annexFlowControl flowcontrolv1client.FlowcontrolV1Interface) error {
	if err := newLevels(annexFlowControl.PriorityLevelConfigurations()).ensure(ctx); err != nil {
		return err
	}
	return newSchemas(annexFlowControl.FlowSchemas()).ensure(ctx)
}

// Config holds what the controller depends on.
type Config struct {
	AnnexFlowControl            flowcontrolv1client.FlowcontrolV1Interface
	FlowSchemas, PriorityLevels cache.SharedIndexInformer
}

// Controller maintains the objects.
type Controller struct {
	queue  *framework.Queue[string]
	synced []cache.DoneChecker
}

// New returns a controller that adds handlers to the informers of config. It does nothing
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

// Run maintains the objects until ctx is done.
func (c *Controller) Run(ctx context.Context, workers int) {
	c.queue.Add(everything)
	c.queue.Run(ctx, workers, c.synced...)
}

// handler queues a reconcile when an object is deleted or changed, except in its status,
// which servers write.
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
