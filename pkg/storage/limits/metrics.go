// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var refusals = metrics.NewCounterVec(&metrics.CounterOpts{
	Namespace:      "annex",
	Subsystem:      "hostedresource",
	Name:           "limit_refusals_total",
	Help:           "Writes that were refused because they would have exceeded a limit of the HostedResource.",
	StabilityLevel: metrics.ALPHA,
}, []string{"hostedresource"})

var register = sync.OnceFunc(func() { legacyregistry.MustRegister(refusals) })
