// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	switchSeconds = metrics.NewHistogram(&metrics.HistogramOpts{
		Namespace:      "annex",
		Subsystem:      "migration",
		Name:           "group_switch_duration_seconds",
		Help:           "Time from the change of the main cluster's routes until the other side serves a group.",
		Buckets:        []float64{.1, .25, .5, 1, 2.5, 5, 10, 20},
		StabilityLevel: metrics.ALPHA,
	})

	// RegisterMetrics registers the metrics of this package.
	RegisterMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(switchSeconds) })
)
