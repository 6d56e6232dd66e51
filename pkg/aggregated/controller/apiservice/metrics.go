// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// published is told by the replica that runs the controllers, and by no other.
var published = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace:      "annex",
	Subsystem:      "apiservice",
	Name:           "published",
	Help:           "Whether the main cluster sends requests for a group version to annex (1) or not (0).",
	StabilityLevel: metrics.ALPHA,
}, []string{"group", "version"})

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(published) })

// observe tells how a version stands.
func observe(version schema.GroupVersion, stands status) {
	value := 0.0
	if stands.published {
		value = 1
	}
	published.WithLabelValues(version.Group, version.Version).Set(value)
}

// forgetMetric tells nothing of a version any more.
func forgetMetric(version schema.GroupVersion) {
	published.DeleteLabelValues(version.Group, version.Version)
}
