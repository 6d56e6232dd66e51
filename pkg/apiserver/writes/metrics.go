// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var plannedWrites = metrics.NewCounterVec(&metrics.CounterOpts{
	Namespace: "annex",
	Subsystem: "custom_resource",
	Name:      "planned_writes_total",
	Help: "Writes of custom resources that could be planned, by verb (create, update, patch, apply or delete) and by " +
		"the reason for which upstream's handler served the request instead, which is empty for those that were planned.",
	StabilityLevel: metrics.ALPHA,
}, []string{"verb", "reason"})

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(plannedWrites) })
