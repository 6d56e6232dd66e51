// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package intact

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/controller/framework/conditions"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
	hostinglisters "github.com/annex-dev/annex/pkg/generated/listers/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/corruption"
)

const (
	// ControllerName names the controller in logs, metrics and events.
	ControllerName = "intact"

	// fieldManager owns the condition.
	fieldManager = "annex-intact"
)

// Registry knows which objects cannot be read. A *corruption.Registry is one.
type Registry interface {
	// Unreadable returns these objects of a resource, in order.
	Unreadable(resource schema.GroupResource) []corruption.Object
	// AllRead reports whether all objects of a resource were read.
	AllRead(resource schema.GroupResource) bool
	// AddHandler has changes reported until remove is called.
	AddHandler(handler func(schema.GroupResource)) (remove func())
}

// Config holds what the controller depends on.
type Config struct {
	AnnexHostedResources hostingclient.HostedResourceInterface
	HostedResources      hostinginformers.HostedResourceInformer
	Unreadable           Registry
	Events               events.EventRecorder
}

// Controller reports which objects cannot be read.
type Controller struct {
	config Config
	writer conditions.Writer
	queue  *framework.Queue[string]
	lister hostinglisters.HostedResourceLister
	synced []cache.DoneChecker
}

// New returns a controller that follows the informer of config and does nothing
// before Run.
func New(config Config) (*Controller, error) {
	c := &Controller{config: config, lister: config.HostedResources.Lister()}
	c.writer = conditions.Writer{
		Type: hostingv1alpha1.HostedResourceObjectsReadable, FieldManager: fieldManager, AnnexHostedResources: config.AnnexHostedResources,
	}
	c.queue = framework.NewQueue(framework.QueueConfig[string]{Name: ControllerName, Reconcile: c.reconcile})
	var err error
	c.synced, err = framework.AddEventHandlers(framework.Source{
		Name: "hosted resources", Informer: config.HostedResources.Informer(),
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    c.enqueue,
			UpdateFunc: func(_, obj any) { c.enqueue(obj) },
		},
	})
	return c, err
}

// Run reports until ctx is done.
func (c *Controller) Run(ctx context.Context, workers int) {
	defer c.config.Unreadable.AddHandler(func(resource schema.GroupResource) { c.queue.Add(resource.String()) })()
	c.queue.Run(ctx, workers, c.synced...)
}

// enqueue queues a HostedResource that something was said or is to be said about.
func (c *Controller) enqueue(obj any) {
	hosted, ok := obj.(*hostingv1alpha1.HostedResource)
	if ok && (c.writer.Get(hosted) != nil || len(c.unreadable(hosted)) > 0) {
		c.queue.Add(hosted.Name)
	}
}

func (c *Controller) unreadable(hosted *hostingv1alpha1.HostedResource) []corruption.Object {
	return c.config.Unreadable.Unreadable(schema.ParseGroupResource(hosted.Name))
}

func (c *Controller) reconcile(ctx context.Context, name string) (framework.Result, error) {
	hosted, err := framework.IgnoreNotFound(c.lister.Get(name))
	if err != nil {
		return framework.Result{}, fmt.Errorf("read hosted resource %s: %w", name, err)
	}
	if hosted == nil {
		return framework.Result{}, nil
	}
	unreadable, before := c.unreadable(hosted), c.writer.Get(hosted)
	switch {
	case len(unreadable) > 0:
	case before == nil:
		return framework.Result{}, nil
	case hosted.Status.DefinitionUID == "":
		return framework.Result{}, c.writer.Write(ctx, name, nil) // of objects that are gone
	case !c.config.Unreadable.AllRead(schema.ParseGroupResource(name)):
		return framework.Result{}, nil // what was said before annex started may still be true
	}
	now := condition(unreadable)
	now.ObservedGeneration = hosted.Generation
	if !conditions.SetTransitionTime(&now, before, time.Now()) {
		return framework.Result{}, nil
	}
	if err := c.writer.Write(ctx, name, &now); err != nil {
		return framework.Result{}, err
	}
	if before == nil || before.Status != now.Status || before.Message != now.Message {
		c.record(hosted, unreadable, now)
	}
	return framework.Result{}, nil
}

// record makes the event of a condition that says something else than before.
func (c *Controller) record(hosted *hostingv1alpha1.HostedResource, unreadable []corruption.Object, now metav1.Condition) {
	if len(unreadable) == 0 {
		c.config.Events.Eventf(hosted, nil, corev1.EventTypeNormal, now.Reason, "Read", "%s", now.Message)
		return
	}
	c.config.Events.Eventf(hosted, nil, corev1.EventTypeWarning, now.Reason, "Read", "%s: %s", summary(unreadable), corruption.Names(unreadable))
}
