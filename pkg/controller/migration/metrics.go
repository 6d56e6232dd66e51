// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	finished = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace:      "annex",
		Subsystem:      "migration",
		Name:           "finished_total",
		Help:           "Migrations that ended, by result: Completed, Failed or Canceled.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})

	switchSeconds = metrics.NewHistogram(&metrics.HistogramOpts{
		Namespace:      "annex",
		Subsystem:      "migration",
		Name:           "switch_duration_seconds",
		Help:           "Time to switch a resource to its new Store. Writes wait for a part of it.",
		Buckets:        metrics.ExponentialBuckets(0.01, 2, 10),
		StabilityLevel: metrics.ALPHA,
	})

	registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(finished, switchSeconds) })
)
