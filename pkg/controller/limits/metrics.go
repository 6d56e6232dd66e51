// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/annex-dev/annex/pkg/storage/limits"
)

// Whose limit it is.
const (
	scopeWhole     = "whole"
	scopeNamespace = "namespace"
)

var filled = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace:      "annex",
	Subsystem:      "hostedresource",
	Name:           "limit_used_ratio",
	Help:           "How much of a limit of a HostedResource is used, 1 being all; of the limits in each namespace, that of the fullest. Only the replica that runs the controllers tells.",
	StabilityLevel: metrics.ALPHA,
}, []string{"hostedresource", "scope", "limit"})

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(filled) })

func observe(name string, whole, namespaces []limits.Utilization) {
	filled.DeletePartialMatch(map[string]string{"hostedresource": name})
	for _, fill := range whole {
		filled.WithLabelValues(name, scopeWhole, string(fill.Name)).Set(fill.Ratio())
	}
	// The fullest is first, and has to be the last word.
	for i := len(namespaces) - 1; i >= 0; i-- {
		filled.WithLabelValues(name, scopeNamespace, string(namespaces[i].Name)).Set(namespaces[i].Ratio())
	}
}
