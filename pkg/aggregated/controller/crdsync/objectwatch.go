// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

const (
	// grace is how long a watch is kept after requests are routed to annex. Each
	// kube-apiserver learns of that separately.
	grace = 10 * time.Second

	// watchTimeout is longer than the main cluster's default.
	watchTimeout = time.Hour
)

// errSwitched is returned when another server responded.
var errSwitched = errors.New("the main cluster no longer serves it itself")

// objectWatches holds the watches on the main cluster's objects.
type objectWatches struct {
	main dynamic.Interface
	// isMain reads from the API whether the main cluster serves a group version itself.
	isMain func(ctx context.Context, version schema.GroupVersion) (bool, error)
	// notify is called when the observation of a definition changes.
	notify func(name string)
	now    func() time.Time

	running sync.WaitGroup

	mu   sync.Mutex
	open map[string]*objectWatch
}

// objectWatch is a watch that began when there were no objects. It is never restarted:
// annex could serve the next request.
type objectWatch struct {
	stop     context.CancelFunc
	versions []string
	// objects are the existing ones.
	objects map[string]struct{}
	ended   bool
	// released is when the watch became unneeded, zero before.
	released time.Time
}

// ensure checks that there are no objects and starts a watch, or returns the observation
// of the existing watch.
func (g *objectWatches) ensure(ctx context.Context, request watchRequest) observation {
	g.mu.Lock()
	if current, ok := g.open[request.name]; ok && !current.ended {
		current.released = time.Time{}
		// All versions of a resource have the same objects, so one watch covers them.
		current.versions = slices.Compact(slices.Sorted(slices.Values(append(current.versions, request.versions...))))
		defer g.mu.Unlock()
		return current.observe()
	}
	g.mu.Unlock()
	return g.start(ctx, request)
}

// observations returns those of a group, by definition.
func (g *objectWatches) observations(group string) map[string]observation {
	g.mu.Lock()
	defer g.mu.Unlock()
	seen := map[string]observation{}
	for name, current := range g.open {
		if groupOf(name) == group {
			seen[name] = current.observe()
		}
	}
	return seen
}

// observe requires the lock.
func (g *objectWatch) observe() observation {
	of := observation{versions: slices.Clone(g.versions)}
	if len(g.objects) > 0 {
		of.object = slices.Min(slices.Collect(maps.Keys(g.objects)))
		of.appeared = true
	}
	return of
}

// start lists objects and, if there are none, watches from the revision of the list.
func (g *objectWatches) start(ctx context.Context, request watchRequest) observation {
	objects := g.main.Resource(request.resource)
	list, err := objects.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return observation{err: fmt.Errorf("list %s in the main cluster: %w", request.name, err)}
	}
	if len(list.Items) > 0 {
		if err := g.checkServedByMain(ctx, request); err != nil {
			return observation{err: err}
		}
		return observation{object: cache.MetaObjectToName(&list.Items[0]).String(), versions: request.versions}
	}
	watching, stop := context.WithCancel(ctx)
	events, err := objects.Watch(watching, metav1.ListOptions{
		ResourceVersion: list.GetResourceVersion(),
		TimeoutSeconds:  ptr.To(int64(watchTimeout / time.Second)),
	})
	if err == nil {
		// If the main cluster still serves the version, it served both requests: it does
		// not observe a change before it is made.
		if err = g.checkServedByMain(ctx, request); err != nil {
			events.Stop()
		}
	}
	if err != nil {
		stop()
		return observation{err: fmt.Errorf("watch %s in the main cluster: %w", request.name, err)}
	}
	begun := &objectWatch{stop: stop, versions: request.versions, objects: map[string]struct{}{}}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open[request.name] = begun
	g.running.Go(func() { g.consume(watching, request.name, begun, events) })
	return begun.observe()
}

// checkServedByMain fails unless the main cluster serves a resource itself.
func (g *objectWatches) checkServedByMain(ctx context.Context, request watchRequest) error {
	is, err := g.isMain(ctx, request.resource.GroupVersion())
	if err != nil {
		return fmt.Errorf("check that the main cluster answers for %s itself: %w", request.resource.GroupVersion(), err)
	}
	if !is {
		return fmt.Errorf("%s: %w", request.resource.GroupVersion(), errSwitched)
	}
	return nil
}

// consume records the events of a watch until it ends.
func (g *objectWatches) consume(ctx context.Context, name string, of *objectWatch, events watch.Interface) {
	defer of.stop()
	defer events.Stop()
	for {
		event, ok := next(ctx, events)
		if !ok || !g.record(of, event) {
			break
		}
		klog.FromContext(ctx).Info("An object of the main cluster changed while its resource is taken over", "definition", name, "event", event.Type)
		g.notify(name)
	}
	g.mu.Lock()
	of.ended = true
	g.mu.Unlock()
	if ctx.Err() == nil {
		klog.FromContext(ctx).V(2).Info("A watch on the main cluster's objects ended", "definition", name)
		g.notify(name)
	}
}

// next returns false if there are no more events.
func next(ctx context.Context, events watch.Interface) (watch.Event, bool) {
	select {
	case <-ctx.Done():
		return watch.Event{}, false
	case event, ok := <-events.ResultChan():
		return event, ok
	}
}

// record records an event, and returns false if the watch ends with it.
func (g *objectWatches) record(of *objectWatch, event watch.Event) bool {
	object, ok := event.Object.(metav1.Object)
	if !ok || event.Type == watch.Error {
		return false
	}
	name := cache.MetaObjectToName(object).String()
	g.mu.Lock()
	defer g.mu.Unlock()
	if event.Type == watch.Deleted {
		delete(of.objects, name)
	} else {
		of.objects[name] = struct{}{}
	}
	return true
}

// release ends the unneeded watches of a group after their grace period, and returns when
// the next one ends.
func (g *objectWatches) release(group string, isNeeded func(name string) bool) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	var next time.Duration
	for name, current := range g.open {
		if groupOf(name) != group || isNeeded(name) {
			continue
		}
		if current.released.IsZero() {
			current.released = g.now()
		}
		left := grace - g.now().Sub(current.released)
		if left <= 0 {
			current.stop()
			delete(g.open, name)
			continue
		}
		if next == 0 || left < next {
			next = left
		}
	}
	return next
}

// wait returns once all watches have ended, which they do with their context.
func (g *objectWatches) wait() { g.running.Wait() }
