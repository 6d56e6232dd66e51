// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package flowcontrol maintains the FlowSchemas and PriorityLevelConfigurations that
// every annex has: it restores the mandatory ones, updates the suggested ones until an
// administrator changes them, and deletes the obsolete ones of earlier versions.
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

// New returns a controller that adds handlers to the informers of config. It does nothing
// before Run.
func New(config Config) (*framework.Queue[string], error) {
	queue := framework.NewQueue(framework.QueueConfig[string]{
		Name: ControllerName,
		Reconcile: func(ctx context.Context, _ string) (framework.Result, error) {
			return framework.Result{RequeueAfter: lookAgain}, Ensure(ctx, config.AnnexFlowControl)
		},
	})
	queue.Add(everything)
	handler := framework.Handler[metav1.Object]{
		// Servers write the status.
		Updated: func(before, after metav1.Object) {
			if before.GetGeneration() != after.GetGeneration() || !maps.Equal(before.GetAnnotations(), after.GetAnnotations()) {
				queue.Add(everything)
			}
		},
		Deleted: func(metav1.Object) { queue.Add(everything) },
	}
	return queue, queue.Watch(
		framework.Source{Name: "FlowSchemas", Informer: config.FlowSchemas, Handler: handler},
		framework.Source{Name: "PriorityLevelConfigurations", Informer: config.PriorityLevels, Handler: handler},
	)
}
