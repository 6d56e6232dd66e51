// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"sync"

	k8smetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/annex-dev/annex/pkg/staticobjects"
)

var (
	sourceObjects = k8smetrics.NewGaugeVec(&k8smetrics.GaugeOpts{
		Namespace:      "annex",
		Subsystem:      "static_source",
		Name:           "objects",
		Help:           "Objects in a source of static objects, in the replica that leads.",
		StabilityLevel: k8smetrics.ALPHA,
	}, []string{"source"})

	sourceStates = k8smetrics.NewGaugeVec(&k8smetrics.GaugeOpts{
		Namespace: "annex",
		Subsystem: "static_source",
		Name:      "object_states",
		Help: "Static objects and mirrors of a source, in the replica that leads, by state: applied, waiting, refused, failing; " +
			"orphaned and kept without a static object.",
		StabilityLevel: k8smetrics.ALPHA,
	}, []string{"source", "state"})

	registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(sourceObjects, sourceStates) })
)

func setMetrics(source string, objects int64, all map[staticobjects.Key]state) {
	sourceObjects.WithLabelValues(source).Set(float64(objects))
	counts := map[phase]int{}
	for _, s := range all {
		if s.source == source {
			counts[s.phase]++
		}
	}
	for _, p := range phases {
		sourceStates.WithLabelValues(source, string(p)).Set(float64(counts[p]))
	}
}

// resetMetrics removes the metrics of a replica that no longer leads.
func resetMetrics() {
	sourceObjects.Reset()
	sourceStates.Reset()
}
