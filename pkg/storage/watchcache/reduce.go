// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"fmt"
	"time"

	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

const (
	// minRestore is the shortest time for which a resource stays reduced. It doubles with each reduction, up to
	// maxRestore, so that a budget that is too small does not fill caches again and again.
	minRestore, maxRestore = 30 * time.Second, time.Hour

	// A resource is restored if all caches then take at most this part of the budget.
	restoreNumerator, restoreDenominator = 3, 4
)

// reduction is the form of a resource below the specified one.
type reduction struct {
	// to is empty if the resource is not reduced.
	to  hostingv1alpha1.Cache
	why string
	// saved has the bytes that the last reduction to each form saved.
	saved map[hostingv1alpha1.Cache]int64
	// count is the number of reductions, and last the time of the last change.
	count int
	last  time.Time
}

var sizes = map[hostingv1alpha1.Cache]int{hostingv1alpha1.CachePlain: 2, hostingv1alpha1.CacheCompressed: 1, hostingv1alpha1.CacheNone: 0}

// smaller reports whether a form takes less memory than another.
func smaller(form, than hostingv1alpha1.Cache) bool { return form != "" && sizes[form] < sizes[than] }

// reduce reduces the largest resource if the budget is exceeded: plain ones are compressed
// before any is dropped. While an earlier reduction is not applied, for example because a cache is
// still filling, the budget may be exceeded by a quarter.
func (b *Budget) reduce(ctx context.Context, applied bool) bool {
	allowed := b.bytes
	if !applied {
		allowed += b.bytes / 4
	}
	if b.bytes == 0 || b.total.Load() <= allowed || ctx.Err() != nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, to := range []hostingv1alpha1.Cache{hostingv1alpha1.CacheCompressed, hostingv1alpha1.CacheNone} {
		name, size := b.largest(to)
		if size == 0 {
			continue
		}
		of := b.resources[name]
		total := b.total.Load()
		if of.saved == nil {
			of.saved = map[hostingv1alpha1.Cache]int64{}
		}
		of.to, of.last, of.count = to, b.now(), of.count+1
		of.saved[to] = size
		of.why = fmt.Sprintf("Watch caches took %s of --cache-memory-budget=%s, and the largest was that of this resource with %s",
			quantity(total), quantity(b.bytes), quantity(size))
		reductions.WithLabelValues(name.String(), string(to)).Inc()
		klog.FromContext(ctx).Info("Reducing a watch cache to stay within the memory budget", "resource", name, "to", to,
			"bytes", size, "total", total, "budget", b.bytes)
		b.changed(name)
		return true
	}
	return false
}

// largest returns the resource with the most memory among those that can be reduced to a form.
// It requires b.mu.
func (b *Budget) largest(to hostingv1alpha1.Cache) (name schema.GroupResource, size int64) {
	for candidate, of := range b.resources {
		if bytes := of.usage().Total(); bytes > size && smaller(to, b.form(candidate)) {
			name, size = candidate, bytes
		}
	}
	return name, size
}

// restore gives the resource that was reduced first the next larger form, if there is room.
func (b *Budget) restore(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var name schema.GroupResource
	var first *resource
	for candidate, of := range b.resources {
		if of.to != "" && b.now().Sub(of.last) >= of.delay() && (first == nil || of.last.Before(first.last)) {
			name, first = candidate, of
		}
	}
	if first == nil || (b.total.Load()+first.saved[first.to])*restoreDenominator > b.bytes*restoreNumerator {
		return
	}
	from := first.to
	first.to, first.last = "", b.now()
	if from == hostingv1alpha1.CacheNone {
		first.to = hostingv1alpha1.CacheCompressed
	}
	klog.FromContext(ctx).Info("Restoring a watch cache, there is room in the memory budget", "resource", name, "from", from)
	b.forget(name, first)
	b.changed(name)
}

// delay returns how long a resource stays as it is before it is restored.
func (r *reduction) delay() time.Duration {
	return min(minRestore<<min(max(r.count-1, 0), 10), maxRestore)
}

// changed calls the handlers. It requires b.mu.
func (b *Budget) changed(name schema.GroupResource) {
	b.handlers.Notify(func(handler func(schema.GroupResource)) { handler(name) })
}

// quantity returns a number of bytes in two digits at least.
func quantity(bytes int64) string {
	for _, unit := range []int64{1 << 20, 1 << 10} {
		if bytes >= 10*unit {
			bytes -= bytes % unit
			break
		}
	}
	return apiresource.NewQuantity(bytes, apiresource.BinarySI).String()
}
