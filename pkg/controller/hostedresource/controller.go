// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"context"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
	hostinglisters "github.com/annex-dev/annex/pkg/generated/listers/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/usage"
)

const (
	// ControllerName names the controller in logs and metrics.
	ControllerName = "hostedresource"

	// usageInterval is the least time between two writes of one status that
	// bring nothing but other numbers.
	usageInterval = time.Second

	// settlePeriod keeps the controller's writes away from the first moments of
	// a new resource, but for those that it cannot be served without. A list just
	// after a write elsewhere waits until etcd tells its watch cache of it, which a
	// fresh cache asks only after 100 ms.
	settlePeriod = 200 * time.Millisecond
)

// UsageFunc tells how much there is of a resource in a Store. It returns false while
// that is not known.
type UsageFunc func(store string, resource schema.GroupResource) (of usage.Usage, known bool)

// Config holds what the controller depends on.
type Config struct {
	AnnexHostedResources hostingclient.HostedResourceInterface
	AnnexDefinitions     apiextensionsclient.CustomResourceDefinitionInterface

	HostedResources           hostinginformers.HostedResourceInformer
	Stores                    hostinginformers.StoreInformer
	CustomResourceDefinitions apiextensionsinformers.CustomResourceDefinitionInformer

	Usage UsageFunc
}

// Controller keeps HostedResources.
type Controller struct {
	queue    *framework.Queue[string]
	lister   hostinglisters.HostedResourceLister
	throttle *framework.Throttle
	synced   []cache.DoneChecker
}

// New returns a controller that follows the informers of config and does nothing
// before Run.
func New(config Config) (*Controller, error) {
	hostedResources, definitions, stores := config.HostedResources.Lister(), config.CustomResourceDefinitions.Lister(), config.Stores.Lister()
	c := &Controller{lister: hostedResources, throttle: framework.NewThrottle(usageInterval, time.Now)}
	r := &reconciler{
		getHosted:     hostedResources.Get,
		getDefinition: definitions.Get,
		getStore:      stores.Get,
		getLiveDefinition: func(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
			return config.AnnexDefinitions.Get(ctx, name, metav1.GetOptions{})
		},
		create: func(ctx context.Context, hosted *hostingv1alpha1.HostedResource) error {
			_, err := config.AnnexHostedResources.Create(ctx, hosted, metav1.CreateOptions{})
			return err
		},
		updateStatus: func(ctx context.Context, hosted *hostingv1alpha1.HostedResource) error {
			_, err := config.AnnexHostedResources.UpdateStatus(ctx, hosted, metav1.UpdateOptions{})
			return err
		},
		updateDefinitionStatus: func(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
			_, err := config.AnnexDefinitions.UpdateStatus(ctx, crd, metav1.UpdateOptions{})
			return err
		},
		delete:   config.AnnexHostedResources.Delete,
		usage:    config.Usage,
		throttle: c.throttle,
		now:      time.Now,
	}
	c.queue = framework.NewQueue(framework.QueueConfig[string]{Name: ControllerName, Reconcile: r.reconcile})
	return c, c.addEventHandlers(config)
}

// addEventHandlers has every change that may matter queue the names it matters to.
func (c *Controller) addEventHandlers(config Config) error {
	named := cache.ResourceEventHandlerFuncs{
		// At once: requests for the resource wait for its Store.
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, obj any) { c.enqueueAfter(obj, settlePeriod) },
		DeleteFunc: c.enqueue,
	}
	stores := cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { c.storeChanged(nil, obj) },
		UpdateFunc: func(before, after any) {
			previous, _ := before.(*hostingv1alpha1.Store)
			c.storeChanged(previous, after)
		},
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			c.storeChanged(nil, obj)
		},
	}
	var err error
	c.synced, err = framework.AddEventHandlers(
		framework.Source{Name: "hosted resources", Informer: config.HostedResources.Informer(), Handler: named},
		framework.Source{Name: "custom resource definitions", Informer: config.CustomResourceDefinitions.Informer(), Handler: named},
		framework.Source{Name: "stores", Informer: config.Stores.Informer(), Handler: stores},
	)
	return err
}

// Run keeps HostedResources until ctx is done.
func (c *Controller) Run(ctx context.Context, workers int) {
	c.queue.Run(ctx, workers, c.synced...)
}

// UsageChanged is to be called when the usage of a resource may have changed. It
// never blocks for long.
func (c *Controller) UsageChanged(resource schema.GroupResource) {
	name := resource.String()
	c.queue.AddAfter(name, c.throttle.Delay(name))
}

// AllUsageChanged is to be called when the usage of any resource may have changed,
// as when it becomes known.
func (c *Controller) AllUsageChanged() {
	c.enqueueWhere(func(*hostingv1alpha1.HostedResource) bool { return true })
}

// enqueue queues the name of a HostedResource or a CustomResourceDefinition:
// they are the same.
func (c *Controller) enqueue(obj any) { c.enqueueAfter(obj, 0) }

func (c *Controller) enqueueAfter(obj any, delay time.Duration) {
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		utilruntime.HandleErrorWithContext(context.Background(), err, "An object without a name was seen", "controller", ControllerName)
		return
	}
	c.queue.AddAfter(name, delay)
}

// storeChanged queues the resources that a Store holds, if it is new, gone or
// says something else about whether it is ready. Its numbers change much more
// often, and do not matter here.
func (c *Controller) storeChanged(before *hostingv1alpha1.Store, obj any) {
	after, ok := obj.(*hostingv1alpha1.Store)
	if !ok || before != nil && sameReadiness(before, after) {
		return
	}
	c.enqueueWhere(func(hosted *hostingv1alpha1.HostedResource) bool { return hosted.Spec.StoreName == after.Name })
}

func (c *Controller) enqueueWhere(matches func(*hostingv1alpha1.HostedResource) bool) {
	all, err := c.lister.List(labels.Everything())
	if err != nil {
		utilruntime.HandleErrorWithContext(context.Background(), err, "Listing hosted resources failed", "controller", ControllerName)
		return
	}
	for _, hosted := range all {
		if matches(hosted) {
			c.queue.Add(hosted.Name)
		}
	}
}

// sameReadiness reports whether two states of a Store mean the same for the
// resources on it.
func sameReadiness(a, b *hostingv1alpha1.Store) bool {
	readyA := meta.FindStatusCondition(a.Status.Conditions, hostingv1alpha1.StoreReady)
	readyB := meta.FindStatusCondition(b.Status.Conditions, hostingv1alpha1.StoreReady)
	if readyA == nil || readyB == nil {
		return readyA == readyB
	}
	return readyA.Status == readyB.Status && readyA.Message == readyB.Message
}
