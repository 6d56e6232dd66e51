// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"sync"

	k8smetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	deletedTotal = k8smetrics.NewCounterVec(&k8smetrics.CounterOpts{
		Namespace:      "annex",
		Subsystem:      "retention",
		Name:           "deleted_objects_total",
		Help:           "Objects that the retention of a HostedResource deleted, by the first rule that deletes them.",
		StabilityLevel: k8smetrics.ALPHA,
	}, []string{"hostedresource", "rule"})

	dueObjects = k8smetrics.NewGaugeVec(&k8smetrics.GaugeOpts{
		Namespace:      "annex",
		Subsystem:      "retention",
		Name:           "due_objects",
		Help:           "Objects that a rule of a retention deletes, or would delete in a dry run, as of its last run.",
		StabilityLevel: k8smetrics.ALPHA,
	}, []string{"hostedresource", "rule"})

	failuresTotal = k8smetrics.NewCounterVec(&k8smetrics.CounterOpts{
		Namespace:      "annex",
		Subsystem:      "retention",
		Name:           "failures_total",
		Help:           "Failed steps of the retention of a HostedResource: list, archive or delete.",
		StabilityLevel: k8smetrics.ALPHA,
	}, []string{"hostedresource", "step"})

	archivedTotal = k8smetrics.NewCounterVec(&k8smetrics.CounterOpts{
		Namespace:      "annex",
		Subsystem:      "retention",
		Name:           "archived_objects_total",
		Help:           "Objects that the retention of a HostedResource wrote to the archive.",
		StabilityLevel: k8smetrics.ALPHA,
	}, []string{"hostedresource"})

	runSeconds = k8smetrics.NewHistogram(&k8smetrics.HistogramOpts{
		Namespace:      "annex",
		Subsystem:      "retention",
		Name:           "run_duration_seconds",
		Help:           "Time to compare all objects of a resource with the rules, rests included.",
		Buckets:        k8smetrics.ExponentialBuckets(0.001, 4, 10),
		StabilityLevel: k8smetrics.ALPHA,
	})

	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(deletedTotal, dueObjects, failuresTotal, archivedTotal, runSeconds)
	})
)

func forgetMetrics(name string) {
	of := map[string]string{"hostedresource": name}
	deletedTotal.DeletePartialMatch(of)
	dueObjects.DeletePartialMatch(of)
	failuresTotal.DeletePartialMatch(of)
	archivedTotal.DeletePartialMatch(of)
}
