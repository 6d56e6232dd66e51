// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var limitUsedRatio = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace:      "annex",
	Subsystem:      "hostedresource",
	Name:           "limit_used_ratio",
	Help:           "Used part of a limit of a HostedResource, at most 1; for the limits in each namespace, that of the fullest namespace. Only the replica that runs the controllers reports it.",
	StabilityLevel: metrics.ALPHA,
}, []string{"hostedresource", "scope", "limit"})

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(limitUsedRatio) })

func forgetLimits(name string) {
	limitUsedRatio.DeletePartialMatch(map[string]string{"hostedresource": name})
}
