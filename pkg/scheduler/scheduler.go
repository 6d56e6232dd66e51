// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/scheduler/framework"
	"github.com/annex-dev/annex/pkg/scheduler/plugins"
)

// ControllerName names the scheduler among annex's controllers.
const ControllerName = "scheduler"

// finishPeriod is how long a binding that has begun may take at shutdown: one that is
// cut short may have been written or not. It is less than a leader has, after it could
// not renew its lease, until another may lead.
const finishPeriod = 2 * time.Second

// Config holds what the scheduler depends on.
type Config struct {
	// Name is that of the HostedResources which are its to place, in their
	// spec.schedulerName.
	Name string

	AnnexHostedResources hostingclient.HostedResourceInterface
	HostedResources      hostinginformers.HostedResourceInformer
	Stores               hostinginformers.StoreInformer

	Events events.EventRecorder
	// Plugins decide, all that are compiled in if nil.
	Plugins *framework.Plugins
}

// Scheduler places HostedResources.
type Scheduler struct {
	config  Config
	plugins *framework.Plugins
	cache   *storeCache
	queue   *queue
	synced  []cache.DoneChecker
	metrics metrics
}

// New returns a scheduler that follows the informers of config and places nothing
// before Run.
func New(config Config) (*Scheduler, error) {
	s := &Scheduler{config: config, plugins: config.Plugins, cache: newStoreCache(), queue: newQueue(), metrics: newMetrics(config.Name)}
	if s.plugins == nil {
		s.plugins = plugins.All()
	}
	return s, s.follow()
}

// Run places HostedResources until ctx is done, with so many bindings at a time. It
// returns once nothing is under way any more, and is called once.
func (s *Scheduler) Run(ctx context.Context, bindings int) {
	defer utilruntime.HandleCrashWithContext(ctx)
	logger := klog.LoggerWithName(klog.FromContext(ctx), "scheduler")
	ctx = klog.NewContext(ctx, logger)
	defer s.queue.close()
	// The wait is announced at V(2) only: it is part of every start.
	if !cache.WaitFor(klog.NewContext(ctx, logger.V(2)), "caches", s.synced...) {
		return
	}
	logger.V(2).Info("Placing hosted resources", "scheduler", s.config.Name)

	// What has begun is finished: a term ends only when nothing is under way.
	working, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(finishPeriod, end)
		context.AfterFunc(working, func() { timer.Stop() })
	})
	defer stop()

	var running sync.WaitGroup
	defer running.Wait()
	free := make(chan struct{}, bindings)
	for {
		name, changes, ok := s.queue.pop(ctx)
		if !ok {
			return
		}
		finish := s.decide(name, changes)
		s.metrics.observeQueue(s.queue)
		if finish == nil {
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
			finish(klog.NewContext(working, logger.WithValues("hostedResource", name)))
		})
	}
}

// decide finds a Store for a resource, and returns what is left to do, which asks the
// server and takes longer.
func (s *Scheduler) decide(name string, changes int64) (finish func(context.Context)) {
	started := time.Now()
	resource, decision := s.cache.decide(name, s.plugins)
	if resource == nil {
		s.queue.release(name)
		return nil
	}
	s.metrics.decided(time.Since(started))
	best, ok := decision.Best()
	if ok {
		return func(ctx context.Context) { s.bind(ctx, resource, best, decision) }
	}
	s.metrics.attempt(resultUnschedulable)
	reasons := make(map[string]string, len(decision))
	for _, result := range decision {
		reasons[result.Store] = result.Message()
	}
	s.queue.addUnschedulable(name, reasons, changes)
	return func(ctx context.Context) { s.reportUnschedulable(ctx, resource, decision) }
}

// bind writes the choice down.
func (s *Scheduler) bind(ctx context.Context, resource *framework.Resource, best framework.StoreResult, decision framework.Decision) {
	logger := klog.FromContext(ctx)
	err := bind(ctx, s.config.AnnexHostedResources, resource.HostedResource, best.Store)
	if err == nil {
		s.metrics.attempt(resultScheduled)
		s.queue.release(resource.Name)
		s.reportScheduled(resource, best, decision)
		logger.V(2).Info("Placed", "store", best.Store, "score", best.Total)
		return
	}
	s.metrics.attempt(resultError)
	if relieved := s.cache.forget(resource); relieved != "" {
		s.storeChanged(relieved)
	}
	switch {
	case apierrors.IsNotFound(err):
		// It is gone; the cache is about to hear of it, or of its successor.
		logger.V(2).Info("Gone before it was placed", "err", err)
	case apierrors.IsConflict(err), apierrors.IsInvalid(err):
		// It or the Store is not what the cache says, any more.
		logger.V(2).Info("Not placed, trying again", "store", best.Store, "err", err)
	default:
		logger.Error(err, "Placing failed, trying again", "store", best.Store)
	}
	s.queue.backOff(resource.Name)
}
