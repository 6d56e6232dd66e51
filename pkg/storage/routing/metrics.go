// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	heldSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace:      "annex",
		Name:           "held_request_duration_seconds",
		Help:           "Time for which requests waited while their resource was switched to another Store, by result: served, returned to the main cluster, refused or canceled.",
		Buckets:        []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})

	registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(heldSeconds) })
)

func observeHeld(result string, since time.Time) {
	heldSeconds.WithLabelValues(result).Observe(time.Since(since).Seconds())
}
