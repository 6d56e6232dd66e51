// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package retention deletes the objects of a resource that the rules of spec.retention of its
// HostedResource name.
//
// A run reads all objects in pages and compares each with the rules. The result is a plan: the
// objects that are due, each with its UID and resource version, and the time of the next. The
// deletions of the plan have these as preconditions, so that an object that has changed meanwhile
// is not deleted but compared again. A plan is dropped if the HostedResource or the definition
// changes, or after a minute, because objects that it counted as newer ones may be gone.
//
// The next run begins when the next object is due or, after a change of objects, within a tenth of
// the shortest age of the rules. One worker runs and deletes, and rests four times as long as it works, so
// that other clients hardly notice it.
package retention

import (
	"context"
	"slices"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
)

// ControllerName names the controller in logs, metrics and events, and as the manager of its
// fields.
const ControllerName = "annex-retention"

// Short names for signatures.
type (
	hosted     = hostingv1alpha1.HostedResource
	definition = apiextensionsv1.CustomResourceDefinition
)

// Config holds what the controller depends on.
type Config struct {
	AnnexHostedResources hostingclient.HostedResourceInterface
	AnnexObjects         Objects

	HostedResources hostinginformers.HostedResourceInformer
	// Definitions have no schemas.
	Definitions apiextensionsinformers.CustomResourceDefinitionInformer
	// WholeDefinition returns one with its schemas.
	WholeDefinition func(name string) (*definition, error)

	// Archive is nil if the server has none.
	Archive Archive
	Events  events.EventRecorder
}

// Controller deletes objects that are due.
type Controller struct {
	*framework.Queue[string]
	config        Config
	getHosted     func(name string) (*hosted, error)
	getDefinition func(name string) (*definition, error)
	now           func() time.Time
	// stopped is closed when Run's context is done. Deletions in flight complete, and no other
	// begins.
	stopped <-chan struct{}

	mu sync.Mutex
	// work has the state of each HostedResource with a retention.
	work map[string]*work
}

// New returns a controller that adds handlers to the informers of config. It does nothing before
// Run.
func New(config Config) (*Controller, error) {
	registerMetrics()
	c := &Controller{
		config:        config,
		getHosted:     config.HostedResources.Lister().Get,
		getDefinition: config.Definitions.Lister().Get,
		now:           time.Now,
		work:          map[string]*work{},
	}
	c.Queue = framework.NewQueue(framework.QueueConfig[string]{Name: ControllerName, Reconcile: c.reconcile})
	resources := framework.Every(func(resource *hosted) { c.Add(resource.Name) })
	resources.Updated = func(before, after *hosted) {
		// Other changes of the status are frequent and irrelevant here.
		if before.Generation != after.Generation || suspended(before) != suspended(after) || before.Status.DefinitionUID != after.Status.DefinitionUID {
			c.Add(after.Name)
		}
	}
	definitions := framework.Every(func(crd *definition) { c.Add(crd.Name) })
	definitions.Updated = func(before, after *definition) {
		if before.Generation != after.Generation || before.UID != after.UID {
			c.Add(after.Name)
		}
	}
	return c, c.Watch(
		framework.Source{Name: "hosted resources", Informer: config.HostedResources.Informer(), Handler: resources},
		framework.Source{Name: "custom resource definitions", Informer: config.Definitions.Informer(), Handler: definitions},
	)
}

// Run deletes objects until ctx is done.
func (c *Controller) Run(ctx context.Context, workers int) {
	// Another replica reports the metric afterwards.
	defer dueObjects.Reset()
	c.stopped = ctx.Done()
	c.Queue.Run(ctx, workers)
}

// UsageChanged implements usage.Handler.
func (c *Controller) UsageChanged(resource schema.GroupResource) {
	c.mu.Lock()
	w := c.work[resource.String()]
	if w == nil || w.changed {
		c.mu.Unlock()
		return
	}
	w.changed = true
	earliest := w.earliest
	c.mu.Unlock()
	c.AddAfter(resource.String(), time.Until(earliest))
}

// AllUsageChanged implements usage.Handler.
func (c *Controller) AllUsageChanged() {
	c.mu.Lock()
	var all []string
	for name := range c.work {
		all = append(all, name)
	}
	c.mu.Unlock()
	for _, name := range all {
		c.UsageChanged(schema.ParseGroupResource(name))
	}
}

// suspended returns why nothing is deleted at present, or an empty string.
func suspended(resource *hosted) string {
	switch {
	case !resource.DeletionTimestamp.IsZero():
		return "The HostedResource is being deleted"
	case !meta.IsStatusConditionTrue(resource.Status.Conditions, hostingv1alpha1.HostedResourceReady):
		return "The resource is not ready"
	case slices.Contains(resource.Finalizers, hostingv1alpha1.MigrationFinalizer):
		return "A Migration moves the resource"
	default:
		return ""
	}
}

// rest waits. It returns false if the controller stops.
func (c *Controller) rest(period time.Duration) bool {
	timer := time.NewTimer(period)
	defer timer.Stop()
	select {
	case <-c.stopped:
		return false
	case <-timer.C:
		return true
	}
}
