// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/annex-dev/annex/pkg/aggregated/group"
)

// published is reported only by the replica that runs the controllers.
var published = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace:      "annex",
	Subsystem:      "apiservice",
	Name:           "published",
	Help:           "Whether the main cluster sends requests for a group version to annex (1) or not (0).",
	StabilityLevel: metrics.ALPHA,
}, []string{"group", "version"})

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(published) })

func observe(version schema.GroupVersion, result group.Status) {
	value := 0.0
	if result.IsTrue() {
		value = 1
	}
	published.WithLabelValues(version.Group, version.Version).Set(value)
}
