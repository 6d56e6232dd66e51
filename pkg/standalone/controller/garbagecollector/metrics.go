// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// deletions is reported only by the replica that runs the controllers.
var deletions = metrics.NewCounter(&metrics.CounterOpts{
	Namespace:      "annex",
	Subsystem:      "garbage_collector",
	Name:           "deletions_total",
	Help:           "How many objects were deleted because their owners are gone.",
	StabilityLevel: metrics.ALPHA,
})

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(deletions) })
