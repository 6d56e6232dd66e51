// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	cacheBytes = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "annex", Subsystem: "hostedresource", Name: "cache_bytes", StabilityLevel: metrics.ALPHA,
		Help: "The memory of the watch caches of a resource, by part: objects, or history for those that were replaced or deleted.",
	}, []string{"hostedresource", "part"})
	cacheObjects = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "annex", Subsystem: "hostedresource", Name: "cache_objects", StabilityLevel: metrics.ALPHA,
		Help: "The objects in the watch cache of a resource.",
	}, []string{"hostedresource"})
	reductions = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "annex", Subsystem: "hostedresource", Name: "cache_reductions_total", StabilityLevel: metrics.ALPHA,
		Help: "Watch caches that were reduced to Compressed or None because the memory budget was exceeded.",
	}, []string{"hostedresource", "to"})
	budgetBytes = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: "annex", Name: "cache_memory_budget_bytes", StabilityLevel: metrics.ALPHA,
		Help: "The memory budget of all watch caches of custom resources, or 0 without one.",
	})
)

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(cacheBytes, cacheObjects, reductions, budgetBytes) })

func setMetrics(name schema.GroupResource, usage Usage) {
	cacheBytes.WithLabelValues(name.String(), "objects").Set(float64(usage.Bytes))
	cacheBytes.WithLabelValues(name.String(), "history").Set(float64(usage.History))
	cacheObjects.WithLabelValues(name.String()).Set(float64(usage.Objects))
}

func forgetMetrics(name schema.GroupResource) {
	for _, part := range []string{"objects", "history"} {
		cacheBytes.DeleteLabelValues(name.String(), part)
	}
	cacheObjects.DeleteLabelValues(name.String())
}
