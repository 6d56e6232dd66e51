// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostedresource creates a HostedResource for every CustomResourceDefinition and
// writes its status: the phase, the Store's readiness, the usage, how full the limits
// are, and which objects cannot be read. All of it is one reconcile and one write.
//
// HostedResources that this controller created have the label annex.dev/automanaged. They
// are deleted with their CustomResourceDefinition, unless the annotation
// annex.dev/definition-from names the main cluster as the source. A HostedResource that a
// user created, or removed the label from, stays and waits for its definition.
//
// Usage changes with every write to the resource. The status follows at most once per
// second and always ends at the exact numbers.
package hostedresource

import (
	"context"
	"time"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
)

const (
	// ControllerName names the controller in logs and metrics.
	ControllerName = "hostedresource"

	// usageInterval is the minimum time between two writes of one status that change
	// only the usage.
	usageInterval = time.Second

	// settlePeriod delays writes for a new resource, except those that it needs to be
	// served: the first list of it would wait for such a write to reach its new watch
	// cache, which requests progress from etcd only after 100 ms.
	settlePeriod = 200 * time.Millisecond
)

// Usage counts the objects of resources and their bytes.
type Usage interface {
	// In is the usage of a resource in a Store, and false while it is unknown.
	In(store string, resource schema.GroupResource) (in usage.Usage, known bool)
	// Namespaces is that by namespace.
	Namespaces(store string, resource schema.GroupResource) map[string]usage.Usage
}

// Config holds what the controller depends on.
type Config struct {
	AnnexHostedResources hostingclient.HostedResourceInterface
	AnnexDefinitions     apiextensionsclient.CustomResourceDefinitionInterface

	HostedResources           hostinginformers.HostedResourceInformer
	Stores                    hostinginformers.StoreInformer
	CustomResourceDefinitions apiextensionsinformers.CustomResourceDefinitionInformer

	Usage      Usage
	Unreadable UnreadableObjects
	Caches     Caches
	Events     events.EventRecorder
}

// Controller keeps HostedResources.
type Controller struct {
	*framework.Queue[string]
	resources  cache.SharedIndexInformer
	throttle   *framework.Throttle
	unreadable UnreadableObjects
	caches     Caches
}

// New returns a controller that adds handlers to the informers of config. It does nothing
// before Run.
func New(config Config) (*Controller, error) {
	hostedResources, definitions, stores := config.HostedResources.Lister(), config.CustomResourceDefinitions.Lister(), config.Stores.Lister()
	registerMetrics()
	c := &Controller{resources: config.HostedResources.Informer(), throttle: framework.NewThrottle(usageInterval, time.Now), unreadable: config.Unreadable, caches: config.Caches}
	r := &reconciler{
		getHosted:     hostedResources.Get,
		getDefinition: definitions.Get,
		getStore:      stores.Get,

		getLiveDefinition:      config.AnnexDefinitions.Get,
		create:                 config.AnnexHostedResources.Create,
		updateStatus:           config.AnnexHostedResources.UpdateStatus,
		updateDefinitionStatus: config.AnnexDefinitions.UpdateStatus,
		delete:                 config.AnnexHostedResources.Delete,

		usage:      config.Usage,
		unreadable: config.Unreadable,
		caches:     config.Caches,
		events:     config.Events,
		throttle:   c.throttle,
		now:        time.Now,
	}
	c.Queue = framework.NewQueue(framework.QueueConfig[string]{Name: ControllerName, Reconcile: r.reconcile})
	return c, c.addEventHandlers(config)
}

func (c *Controller) addEventHandlers(config Config) error {
	// A HostedResource and its definition have the same name. A new one is queued
	// immediately: requests for the resource wait for its Store.
	named := framework.Every(func(object metav1.Object) { c.Add(object.GetName()) })
	named.Updated = func(_, after metav1.Object) { c.AddAfter(after.GetName(), settlePeriod) }
	stores := framework.Every(c.enqueueOn)
	stores.Updated = func(before, after *hostingv1alpha1.Store) {
		// Other changes of the status are frequent and irrelevant here.
		if !sameReadiness(before, after) {
			c.enqueueOn(after)
		}
	}
	return c.Watch(
		framework.Source{Name: "hosted resources", Informer: config.HostedResources.Informer(), Handler: named},
		framework.Source{Name: "custom resource definitions", Informer: config.CustomResourceDefinitions.Informer(), Handler: named},
		framework.Source{Name: "stores", Informer: config.Stores.Informer(), Handler: stores},
	)
}

// Run keeps HostedResources until ctx is done.
func (c *Controller) Run(ctx context.Context, workers int) {
	// Another replica reports the metrics afterwards.
	defer limitUsedRatio.Reset()
	defer c.unreadable.AddHandler(func(resource schema.GroupResource) { c.Add(resource.String()) })()
	defer c.caches.AddHandler(c.UsageChanged)()
	c.Queue.Run(ctx, workers)
}

// UsageChanged implements usage.Handler.
func (c *Controller) UsageChanged(resource schema.GroupResource) {
	name := resource.String()
	c.AddAfter(name, c.throttle.Delay(name))
}

// AllUsageChanged implements usage.Handler.
func (c *Controller) AllUsageChanged() {
	framework.AddWhere(c, c.resources, func(*hosted) bool { return true })
}

// enqueueOn queues the resources on a Store.
func (c *Controller) enqueueOn(store *hostingv1alpha1.Store) {
	framework.AddWhere(c, c.resources, func(resource *hosted) bool { return resource.Spec.StoreName == store.Name })
}

func sameReadiness(a, b *hostingv1alpha1.Store) bool {
	readyA := meta.FindStatusCondition(a.Status.Conditions, hostingv1alpha1.StoreReady)
	readyB := meta.FindStatusCondition(b.Status.Conditions, hostingv1alpha1.StoreReady)
	if readyA == nil || readyB == nil {
		return readyA == readyB
	}
	return readyA.Status == readyB.Status && readyA.Message == readyB.Message
}
