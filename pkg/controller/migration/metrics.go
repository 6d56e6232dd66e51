// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"sync"

	k8smetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	finished = k8smetrics.NewCounterVec(&k8smetrics.CounterOpts{
		Namespace:      "annex",
		Subsystem:      "migration",
		Name:           "finished_total",
		Help:           "Migrations that ended, by result: Completed, Failed or Canceled.",
		StabilityLevel: k8smetrics.ALPHA,
	}, []string{"result"})

	switchSeconds = k8smetrics.NewHistogram(&k8smetrics.HistogramOpts{
		Namespace:      "annex",
		Subsystem:      "migration",
		Name:           "switch_duration_seconds",
		Help:           "Time to switch a resource to its new Store. Writes wait for a part of it.",
		Buckets:        k8smetrics.ExponentialBuckets(0.01, 2, 10),
		StabilityLevel: k8smetrics.ALPHA,
	})

	registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(finished, switchSeconds) })
)
