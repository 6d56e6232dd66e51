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
func (b *Budget) SetSpecified(specified func(schema.GroupResource) hostingv1alpha1.Cache) {
	b.specified.Store(&specified)
}

// Notify changes the total usage.
func (b *Budget) Notify(change int64) {
	if total := b.total.Add(change); change > 0 && b.bytes > 0 && total > b.bytes {
		select {
		case b.exceeded <- struct{}{}:
		default:
		}
	}
}

// Add adds a cache until remove is called.
func (b *Budget) Add(name schema.GroupResource, cache Budgeted) (remove func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.resources[name]
	if of == nil {
		of = &resource{caches: map[Budgeted]struct{}{}}
		b.resources[name] = of
	}
	of.caches[cache] = struct{}{}
	of.reported = of.usage()
	setMetrics(name, of.reported)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(of.caches, cache)
		b.forget(name, of)
	}
}

// forget removes a resource without caches. A reduced resource stays, because its caches are created again
// after a change of its definition. It requires b.mu.
func (b *Budget) forget(name schema.GroupResource, of *resource) {
	if len(of.caches) == 0 {
		forgetMetrics(name)
		if of.to == "" {
			delete(b.resources, name)
		}
	}
}

// Form returns how the objects of a resource are to be kept now.
func (b *Budget) Form(name schema.GroupResource) hostingv1alpha1.Cache {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.form(name)
}

// form requires b.mu.
func (b *Budget) form(name schema.GroupResource) hostingv1alpha1.Cache {
	form := b.specifiedForm(name)
	if of := b.resources[name]; of != nil && smaller(of.to, form) {
		return of.to
	}
	return form
}

// specifiedForm returns what is specified for a resource.
func (b *Budget) specifiedForm(name schema.GroupResource) hostingv1alpha1.Cache {
	form := hostingv1alpha1.CachePlain
	if specified := b.specified.Load(); specified != nil {
		form = cmp.Or((*specified)(name), form)
	}
	return form
}

// Usage returns the usage of a resource in all versions. known is false if it has no caches.
func (b *Budget) Usage(name schema.GroupResource) (usage Usage, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.resources[name]
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
func (b *Budget) Reduced(name schema.GroupResource) (to hostingv1alpha1.Cache, why string, reduced bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.resources[name]
	if of == nil || !smaller(of.to, b.specifiedForm(name)) {
		return "", "", false
	}
	return of.to, of.why, true
}

// AddHandler registers a handler of changes of Usage and Reduced until remove is called. It must
// not block.
func (b *Budget) AddHandler(handler func(schema.GroupResource)) (remove func()) {
	return b.handlers.Add(handler)
}

// Run keeps the caches as they are to be until ctx is done.
func (b *Budget) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), "watchcache"))
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.exceeded:
		case <-ticker.C:
		}
		if err := b.sync(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(1).Info("Failed to change watch caches, retrying", "err", err)
		}
	}
}

// sync applies the budget and what is specified.
func (b *Budget) sync(ctx context.Context) error {
	err := b.apply(ctx)
	for b.reduce(ctx, err == nil) {
		err = b.apply(ctx)
	}
	b.restore(ctx)
	b.report()
	return err
}

// apply applies the form of each resource to its caches.
func (b *Budget) apply(ctx context.Context) error {
	type change struct {
		Budgeted
		to hostingv1alpha1.Cache
	}
	var changes []change
	b.mu.Lock()
	for name, of := range b.resources {
		to := b.form(name)
		for cache := range of.caches {
			changes = append(changes, change{cache, to})
		}
	}
	b.mu.Unlock()
	var errs []error
	for _, c := range changes {
		if err := c.Apply(ctx, c.to); err != nil {
			errs = append(errs, fmt.Errorf("keep objects %s: %w", c.to, err))
		}
	}
	return errors.Join(errs...)
}

// report sets metrics and calls handlers for the resources whose usage changed.
func (b *Budget) report() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, of := range b.resources {
		usage := of.usage()
		if usage == of.reported || len(of.caches) == 0 {
			continue
		}
		of.reported = usage
		setMetrics(name, usage)
		b.changed(name)
	}
}
