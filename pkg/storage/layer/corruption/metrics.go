// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package corruption

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var unreadable = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace:      "annex",
	Name:           "unreadable_objects",
	Help:           "Objects that are stored and cannot be read, by resource.",
	StabilityLevel: metrics.ALPHA,
}, []string{"resource"})

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(unreadable) })
