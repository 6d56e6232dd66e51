// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package objectsize

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	held = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace:      "annex",
		Name:           "large_writes_bytes",
		Help:           "Bytes of large objects that are being written.",
		StabilityLevel: metrics.ALPHA,
	})
	waiting = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace:      "annex",
		Name:           "large_writes_waiting",
		Help:           "Writes of large objects that wait for others.",
		StabilityLevel: metrics.ALPHA,
	})
)

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(held, waiting) })
