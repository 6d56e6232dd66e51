// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"sync"

	k8smetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	reads = k8smetrics.NewCounterVec(&k8smetrics.CounterOpts{
		Namespace:      "annex",
		Subsystem:      "static_source",
		Name:           "reads_total",
		Help:           "Attempts of this replica to read a source of static objects, by source and result: complete or incomplete.",
		StabilityLevel: k8smetrics.ALPHA,
	}, []string{"source", "result"})

	registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(reads) })
)

func countRead(source string, snapshot Snapshot) {
	registerMetrics()
	result := "incomplete"
	if snapshot.Complete {
		result = "complete"
	}
	reads.WithLabelValues(source, result).Inc()
}
