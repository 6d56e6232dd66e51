// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

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
	"github.com/annex-dev/annex/pkg/observers"
)

// interval is the time between comparisons of the caches with what they should be. If the budget is exceeded, they
// are compared at once.
const interval = time.Second

// Budgeted is a watch cache of a version of a resource, or none at present.
type Budgeted interface {
	Usage() Usage
	// Apply changes how objects are kept. It is not called concurrently.
	Apply(ctx context.Context, form hostingv1alpha1.Cache) error
}

// Budget keeps the watch caches of all custom resources of a process within an amount of memory: if they
// exceed it, the largest are compressed, and then dropped. Their resources are read from the Store until
// there is room.
type Budget struct {
	// bytes is 0 for an unlimited budget.
	bytes     int64
	now       func() time.Time
	specified atomic.Pointer[func(schema.GroupResource) hostingv1alpha1.Cache]
	// total is the usage of all caches.
	total    atomic.Int64
	exceeded chan struct{}

	mu        sync.Mutex
	resources map[schema.GroupResource]*resource
	handlers  observers.Set[func(schema.GroupResource)]
}

// resource has the caches of a resource. It stays while it is reduced, also without caches.
type resource struct {
	caches map[Budgeted]struct{}
	reduction
	// reported is the usage of which handlers were notified.
	reported Usage
}

// NewBudget returns a budget of bytes for watch caches. 0 is unlimited.
func NewBudget(bytes int64) *Budget {
	registerMetrics()
	budgetBytes.Set(float64(bytes))
	return &Budget{bytes: bytes, now: time.Now, exceeded: make(chan struct{}, 1), resources: map[schema.GroupResource]*resource{}}
}

// SetSpecified sets the function that returns spec.cache of a resource.
func (r *Budget) SetSpecified(specified func(schema.GroupResource) hostingv1alpha1.Cache) {
	r.specified.Store(&specified)
}

// Notify changes the total usage.
func (r *Budget) Notify(change int64) {
	if total := r.total.Add(change); change > 0 && r.bytes > 0 && total > r.bytes {
		select {
		case r.exceeded <- struct{}{}:
		default:
		}
	}
}

// Add adds a cache until remove is called.
func (r *Budget) Add(name schema.GroupResource, cache Budgeted) (remove func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.resources[name]
	if of == nil {
		of = &resource{caches: map[Budgeted]struct{}{}}
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
func (r *Budget) forget(name schema.GroupResource, of *resource) {
	if len(of.caches) == 0 {
		forgetMetrics(name)
		if of.to == "" {
			delete(r.resources, name)
		}
	}
}

// Form returns how the objects of a resource are to be kept now.
func (r *Budget) Form(name schema.GroupResource) hostingv1alpha1.Cache {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.form(name)
}

// form requires r.mu.
func (r *Budget) form(name schema.GroupResource) hostingv1alpha1.Cache {
	form := r.specifiedForm(name)
	if of := r.resources[name]; of != nil && smaller(of.to, form) {
		return of.to
	}
	return form
}

// specifiedForm returns what is specified for a resource.
func (r *Budget) specifiedForm(name schema.GroupResource) hostingv1alpha1.Cache {
	form := hostingv1alpha1.CachePlain
	if specified := r.specified.Load(); specified != nil {
		form = cmp.Or((*specified)(name), form)
	}
	return form
}

// Usage returns the usage of a resource in all versions. known is false if it has no caches.
func (r *Budget) Usage(name schema.GroupResource) (usage Usage, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.resources[name]
	if of == nil {
		return Usage{}, false
	}
	return of.usage(), true
}

func (r *resource) usage() (total Usage) {
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
func (r *Budget) Reduced(name schema.GroupResource) (to hostingv1alpha1.Cache, why string, reduced bool) {
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
func (r *Budget) AddHandler(handler func(schema.GroupResource)) (remove func()) {
	return r.handlers.Add(handler)
}

// Run keeps the caches as they are to be until ctx is done.
func (r *Budget) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), "watchcache"))
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
func (r *Budget) sync(ctx context.Context) error {
	err := r.apply(ctx)
	for r.reduce(ctx, err == nil) {
		err = r.apply(ctx)
	}
	r.restore(ctx)
	r.report()
	return err
}

// apply applies the form of each resource to its caches.
func (r *Budget) apply(ctx context.Context) error {
	type change struct {
		Budgeted
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
func (r *Budget) report() {
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
