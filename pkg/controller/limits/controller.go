// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/controller/framework/conditions"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
	hostinglisters "github.com/annex-dev/annex/pkg/generated/listers/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/limits"
	"github.com/annex-dev/annex/pkg/storage/usage"
)

const (
	// ControllerName names the controller in logs, metrics and events.
	ControllerName = "limits"

	// fieldManager owns the condition.
	fieldManager = "annex-limits"

	// usageInterval is the least time between two writes of one status that bring
	// nothing but other numbers.
	usageInterval = time.Second
)

// Usage knows how much there is of each resource.
type Usage interface {
	// In is the usage of a resource in a Store, and false while that is not known.
	In(store string, resource schema.GroupResource) (in usage.Usage, known bool)
	// Namespaces is the usage in every namespace that has some.
	Namespaces(resource schema.GroupResource) map[string]usage.Usage
}

// Config holds what the controller depends on.
type Config struct {
	AnnexHostedResources hostingclient.HostedResourceInterface
	HostedResources      hostinginformers.HostedResourceInformer
	Usage                Usage
	Events               events.EventRecorder
}

// Controller reports how full limits are.
type Controller struct {
	config   Config
	writer   conditions.Writer
	queue    *framework.Queue[string]
	lister   hostinglisters.HostedResourceLister
	throttle *framework.Throttle
	synced   []cache.DoneChecker
}

// New returns a controller that follows the informer of config and does nothing
// before Run.
func New(config Config) (*Controller, error) {
	registerMetrics()
	c := &Controller{config: config, lister: config.HostedResources.Lister(), throttle: framework.NewThrottle(usageInterval, time.Now)}
	c.writer = conditions.Writer{
		Type: hostingv1alpha1.HostedResourceWithinLimits, FieldManager: fieldManager, AnnexHostedResources: config.AnnexHostedResources,
	}
	c.queue = framework.NewQueue(framework.QueueConfig[string]{Name: ControllerName, Reconcile: c.reconcile})
	var err error
	c.synced, err = framework.AddEventHandlers(framework.Source{
		Name: "hosted resources", Informer: config.HostedResources.Informer(),
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    c.enqueue,
			UpdateFunc: func(_, obj any) { c.enqueue(obj) },
			DeleteFunc: c.enqueue,
		},
	})
	return c, err
}

// Run reports until ctx is done.
func (c *Controller) Run(ctx context.Context, workers int) {
	defer filled.Reset()
	c.queue.Run(ctx, workers, c.synced...)
}

// UsageChanged is to be called when the usage of a resource may have changed. It
// never blocks for long.
func (c *Controller) UsageChanged(resource schema.GroupResource) {
	name := resource.String()
	if hosted, err := c.lister.Get(name); err == nil && c.concerns(hosted) {
		c.queue.AddAfter(name, c.throttle.Delay(name))
	}
}

// AllUsageChanged is to be called when the usage of any resource may have changed,
// as when it becomes known.
func (c *Controller) AllUsageChanged() {
	all, err := c.lister.List(labels.Everything())
	if err != nil {
		utilruntime.HandleErrorWithContext(context.Background(), err, "Listing hosted resources failed", "controller", ControllerName)
		return
	}
	for _, hosted := range all {
		c.enqueue(hosted)
	}
}

func (c *Controller) enqueue(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	if hosted, ok := obj.(*hostingv1alpha1.HostedResource); ok && c.concerns(hosted) {
		c.queue.Add(hosted.Name)
	}
}

// concerns reports whether a HostedResource has limits, or a condition from when it
// had some.
func (c *Controller) concerns(hosted *hostingv1alpha1.HostedResource) bool {
	return !limits.Of(hosted).None() || c.writer.Get(hosted) != nil
}

func (c *Controller) reconcile(ctx context.Context, name string) (framework.Result, error) {
	hosted, err := framework.IgnoreNotFound(c.lister.Get(name))
	if err != nil {
		return framework.Result{}, fmt.Errorf("read hosted resource %s: %w", name, err)
	}
	if hosted == nil || limits.Of(hosted).None() {
		c.throttle.Forget(name)
		filled.DeletePartialMatch(map[string]string{"hostedresource": name})
		if hosted == nil || c.writer.Get(hosted) == nil {
			return framework.Result{}, nil
		}
		return framework.Result{}, c.writer.Write(ctx, name, nil)
	}
	used, known := c.config.Usage.In(hosted.Spec.StoreName, schema.ParseGroupResource(name))
	if !known {
		return framework.Result{}, nil // comes again when it is
	}
	return c.report(ctx, hosted, used)
}

// report says how full the limits are, and puts off news of nothing but numbers if
// such were just written.
func (c *Controller) report(ctx context.Context, hosted *hostingv1alpha1.HostedResource, used usage.Usage) (framework.Result, error) {
	of := limits.Of(hosted)
	whole := of.Utilization(used)
	namespaces := of.NamespaceUtilization(c.config.Usage.Namespaces(schema.ParseGroupResource(hosted.Name)))
	observe(hosted.Name, whole, namespaces)

	before, now := c.writer.Get(hosted), condition(whole, namespaces)
	now.ObservedGeneration = hosted.Generation
	if !conditions.SetTransitionTime(&now, before, time.Now()) {
		return framework.Result{}, nil
	}
	if wait := c.throttle.Delay(hosted.Name); wait > 0 && !conditions.IsUrgent(&now, before) {
		return framework.Result{RequeueAfter: wait}, nil
	}
	if err := c.writer.Write(ctx, hosted.Name, &now); err != nil {
		return framework.Result{}, err
	}
	c.throttle.Mark(hosted.Name)
	if now.Status == metav1.ConditionFalse && (before == nil || before.Status != now.Status) {
		c.config.Events.Eventf(hosted, nil, corev1.EventTypeWarning, now.Reason, "Limit", "%s", now.Message)
	}
	return framework.Result{}, nil
}
