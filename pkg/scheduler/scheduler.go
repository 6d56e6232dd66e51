// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	controllerframework "github.com/annex-dev/annex/pkg/controller/framework"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/scheduler/framework"
	"github.com/annex-dev/annex/pkg/scheduler/plugins"
)

// ControllerName names the scheduler among annex's controllers.
const ControllerName = "scheduler"

// Config holds what the scheduler depends on.
type Config struct {
	// Name is the spec.schedulerName of the HostedResources to place.
	Name string

	AnnexHostedResources hostingclient.HostedResourceInterface
	HostedResources      hostinginformers.HostedResourceInformer
	Stores               hostinginformers.StoreInformer
	Migrations           hostinginformers.MigrationInformer

	Events events.EventRecorder
	// Plugins default to all.
	Plugins *framework.Plugins
}

// Scheduler places HostedResources.
type Scheduler struct {
	controllerframework.Watches

	config  Config
	plugins *framework.Plugins
	cache   *storeCache
	queue   workqueue.TypedRateLimitingInterface[string]
	metrics metrics
}

// New returns a scheduler with event handlers on the informers of config.
func New(config Config) (*Scheduler, error) {
	s := &Scheduler{config: config, plugins: config.Plugins, cache: newStoreCache(), metrics: newMetrics(config.Name)}
	if s.plugins == nil {
		s.plugins = plugins.All()
	}
	s.queue = newQueue(s.cache.priority)
	return s, s.addEventHandlers()
}

// Run places HostedResources until ctx is done, with at most the given number of
// concurrent bindings. It waits for bindings in flight. It must be called only once.
func (s *Scheduler) Run(ctx context.Context, bindings int) {
	defer utilruntime.HandleCrashWithContext(ctx)
	logger := klog.LoggerWithName(klog.FromContext(ctx), "scheduler")
	ctx = klog.NewContext(ctx, logger)
	defer s.Unwatch()
	defer s.queue.ShutDown()
	if !s.Wait(ctx) {
		return
	}
	logger.V(2).Info("Placing hosted resources", "scheduler", s.config.Name)

	// Leadership ends only after the bindings in flight.
	working, end := controllerframework.Outlast(ctx)
	defer end()
	defer context.AfterFunc(ctx, s.queue.ShutDown)()

	var running sync.WaitGroup
	defer running.Wait()
	free := make(chan struct{}, bindings)
	for {
		name, shutDown := s.queue.Get()
		if shutDown || ctx.Err() != nil {
			return
		}
		finish := s.decide(name)
		all, unschedulable := s.cache.waiting(s.waitsHere)
		s.metrics.waiting(all, s.queue.Len(), unschedulable)
		if finish == nil {
			s.queue.Done(name)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case free <- struct{}{}:
		}
		running.Go(func() {
			defer utilruntime.HandleCrashWithContext(working)
			defer func() { <-free }()
			defer s.queue.Done(name)
			finish(klog.NewContext(working, logger.WithValues("hostedResource", name)))
		})
	}
}

// decide finds a Store for a resource. finish sends the result to the API server.
func (s *Scheduler) decide(name string) (finish func(context.Context)) {
	started := time.Now()
	resource, decision := s.cache.decide(name, s.waitsHere, s.plugins)
	if resource == nil {
		s.queue.Forget(name)
		return nil
	}
	s.metrics.decided(time.Since(started))
	best, ok := decision.Best()
	if ok {
		return func(ctx context.Context) { s.bind(ctx, resource, best, decision) }
	}
	s.metrics.attempt(resultUnschedulable)
	return func(ctx context.Context) { s.reportUnschedulable(ctx, resource, decision) }
}

func (s *Scheduler) bind(ctx context.Context, resource *framework.Resource, best framework.StoreResult, decision framework.Decision) {
	logger := klog.FromContext(ctx)
	// The UID makes sure that it is not a new resource of the same name.
	_, err := s.config.AnnexHostedResources.Bind(ctx, resource.Name, &hostingv1alpha1.HostedResourceBinding{
		ObjectMeta: metav1.ObjectMeta{Name: resource.Name, UID: resource.UID},
		StoreName:  best.Store,
	}, metav1.CreateOptions{})
	if err == nil {
		s.metrics.attempt(resultScheduled)
		s.queue.Forget(resource.Name)
		s.reportScheduled(resource, best, decision)
		logger.V(2).Info("Placed", "store", best.Store, "score", best.Total)
		return
	}
	s.metrics.attempt(resultError)
	s.storeChanged(s.cache.forget(resource))
	switch {
	case apierrors.IsNotFound(err):
		logger.V(2).Info("Deleted before it was placed", "err", err)
	case apierrors.IsConflict(err), apierrors.IsInvalid(err):
		// The cache is out of date.
		logger.V(2).Info("Not placed, retrying", "store", best.Store, "err", err)
	default:
		logger.Error(err, "Failed to place, retrying", "store", best.Store)
	}
	s.queue.AddRateLimited(resource.Name)
}

// Cluster has all objects that decisions depend on.
type Cluster struct {
	Resources  []hostingv1alpha1.HostedResource
	Stores     []hostingv1alpha1.Store
	Migrations []hostingv1alpha1.Migration
}

// Decide returns what the scheduler would decide about a resource if it had no Store. It
// changes nothing.
func (c Cluster) Decide(hosted *hostingv1alpha1.HostedResource) framework.Decision {
	s := newStoreCache()
	for i := range c.Stores {
		s.setStore(&c.Stores[i])
	}
	for i := range c.Resources {
		if c.Resources[i].Name != hosted.Name {
			s.setResource(&c.Resources[i])
		}
	}
	for i := range c.Migrations {
		s.setMigration(&c.Migrations[i], true)
	}
	unplaced := hosted.DeepCopy()
	unplaced.Spec.StoreName = ""
	s.setResource(unplaced)
	_, decision := s.decide(hosted.Name, func(*hostingv1alpha1.HostedResource) bool { return true }, plugins.All())
	return decision
}

// ReadCluster reads a Cluster from the API.
func ReadCluster(ctx context.Context, annexHosting hostingclient.HostingV1alpha1Interface) (Cluster, error) {
	resources, err := annexHosting.HostedResources().List(ctx, metav1.ListOptions{})
	if err != nil {
		return Cluster{}, fmt.Errorf("list HostedResources: %w", err)
	}
	stores, err := annexHosting.Stores().List(ctx, metav1.ListOptions{})
	if err != nil {
		return Cluster{}, fmt.Errorf("list Stores: %w", err)
	}
	migrations, err := annexHosting.Migrations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return Cluster{}, fmt.Errorf("list Migrations: %w", err)
	}
	return Cluster{resources.Items, stores.Items, migrations.Items}, nil
}
