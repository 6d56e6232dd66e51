// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package cachememory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/encoded"
	"github.com/annex-dev/annex/pkg/storage/handlers"
)

// interval is how often the caches are compared with what they should be. A budget that is
// exceeded is noticed at once.
const interval = time.Second

// Usage is the memory of watch caches.
type Usage = encoded.Usage

// Cache is a watch cache of a version of a resource, or none at present.
type Cache interface {
	Usage() encoded.Usage
	// Apply changes how objects are kept. It is not called concurrently.
	Apply(ctx context.Context, form hostingv1alpha1.Cache) error
}

// Config configures a Registry.
type Config struct {
	// Budget is the memory of all watch caches together, in bytes. 0 is unlimited.
	Budget int64
	// Now is the clock.
	Now func() time.Time
}

// Registry has the watch caches of all custom resources of a process.
type Registry struct {
	Config
	specified atomic.Pointer[func(schema.GroupResource) hostingv1alpha1.Cache]
	// total is the usage of all caches.
	total    atomic.Int64
	exceeded chan struct{}

	mu        sync.Mutex
	resources map[schema.GroupResource]*resource
	handlers  handlers.Set[func(schema.GroupResource)]
}

// resource has the caches of a resource. It stays while it is reduced, also without caches.
type resource struct {
	caches map[Cache]struct{}
	reduction
	// reported is the usage that handlers know of.
	reported encoded.Usage
}

// NewRegistry returns an empty Registry.
func NewRegistry(config Config) *Registry {
	registerMetrics()
	if config.Now == nil {
		config.Now = time.Now
	}
	budgetBytes.Set(float64(config.Budget))
	return &Registry{
		Config: config, exceeded: make(chan struct{}, 1),
		resources: map[schema.GroupResource]*resource{},
	}
}

// SetSpecified sets the function that returns spec.cache of a resource.
func (r *Registry) SetSpecified(specified func(schema.GroupResource) hostingv1alpha1.Cache) {
	r.specified.Store(&specified)
}

// Notify changes the total usage.
func (r *Registry) Notify(change int64) {
	if total := r.total.Add(change); change > 0 && r.Budget > 0 && total > r.Budget {
		select {
		case r.exceeded <- struct{}{}:
		default:
		}
	}
}

// Add adds a cache until remove is called.
func (r *Registry) Add(name schema.GroupResource, cache Cache) (remove func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.resources[name]
	if of == nil {
		of = &resource{caches: map[Cache]struct{}{}}
		r.resources[name] = of
	}
	of.caches[cache] = struct{}{}
	of.reported = of.usage()
	setMetrics(name, of.reported)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(of.caches, cache)
		r.forget(name, of)
	}
}

// forget forgets a resource without caches. While it is reduced it stays: its definition may have
// changed, at which its caches are created again. It requires r.mu.
func (r *Registry) forget(name schema.GroupResource, of *resource) {
	if len(of.caches) == 0 {
		forgetMetrics(name)
		if of.to == "" {
			delete(r.resources, name)
		}
	}
}

// Form returns how the objects of a resource are to be kept now.
func (r *Registry) Form(name schema.GroupResource) hostingv1alpha1.Cache {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.form(name)
}

// form requires r.mu.
func (r *Registry) form(name schema.GroupResource) hostingv1alpha1.Cache {
	form := r.specifiedForm(name)
	if of := r.resources[name]; of != nil && smaller(of.to, form) {
		return of.to
	}
	return form
}

// specifiedForm returns what is specified for a resource.
func (r *Registry) specifiedForm(name schema.GroupResource) hostingv1alpha1.Cache {
	form := hostingv1alpha1.CachePlain
	if specified := r.specified.Load(); specified != nil {
		form = cmp.Or((*specified)(name), form)
	}
	return form
}

// Usage returns the usage of a resource in all versions. known is false if it has no caches.
func (r *Registry) Usage(name schema.GroupResource) (usage encoded.Usage, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.resources[name]
	if of == nil {
		return encoded.Usage{}, false
	}
	return of.usage(), true
}

func (r *resource) usage() (total encoded.Usage) {
	for cache := range r.caches {
		usage := cache.Usage()
		total.Objects = max(total.Objects, usage.Objects)
		total.Bytes += usage.Bytes
		total.History += usage.History
	}
	return total
}

// Reduced returns how the objects of a resource are kept because the budget does not allow what
// is specified, and why.
func (r *Registry) Reduced(name schema.GroupResource) (to hostingv1alpha1.Cache, why string, reduced bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.resources[name]
	if of == nil || !smaller(of.to, r.specifiedForm(name)) {
		return "", "", false
	}
	return of.to, of.why, true
}

// AddHandler registers a handler of changes of Usage and Reduced until remove is called. It must
// not block.
func (r *Registry) AddHandler(handler func(schema.GroupResource)) (remove func()) {
	return r.handlers.Add(handler)
}

// Run keeps the caches as they are to be until ctx is done.
func (r *Registry) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), "cachememory"))
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.exceeded:
		case <-ticker.C:
		}
		if err := r.sync(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(1).Info("Failed to change watch caches, retrying", "err", err)
		}
	}
}

// sync applies the budget and what is specified.
func (r *Registry) sync(ctx context.Context) error {
	err := r.apply(ctx)
	for r.reduce(ctx, err == nil) {
		err = r.apply(ctx)
	}
	r.restore(ctx)
	r.report()
	return err
}

// apply applies the form of each resource to its caches.
func (r *Registry) apply(ctx context.Context) error {
	type change struct {
		Cache
		to hostingv1alpha1.Cache
	}
	var changes []change
	r.mu.Lock()
	for name, of := range r.resources {
		to := r.form(name)
		for cache := range of.caches {
			changes = append(changes, change{cache, to})
		}
	}
	r.mu.Unlock()
	var errs []error
	for _, c := range changes {
		if err := c.Apply(ctx, c.to); err != nil {
			errs = append(errs, fmt.Errorf("keep objects %s: %w", c.to, err))
		}
	}
	return errors.Join(errs...)
}

// report sets metrics and calls handlers for the resources whose usage changed.
func (r *Registry) report() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, of := range r.resources {
		usage := of.usage()
		if usage == of.reported || len(of.caches) == 0 {
			continue
		}
		of.reported = usage
		setMetrics(name, usage)
		r.changed(name)
	}
}
