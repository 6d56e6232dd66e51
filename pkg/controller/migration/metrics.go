// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
)

var (
	createdDesc = metrics.NewDesc("annex_migration_created_timestamp_seconds",
		"When a Migration that has not finished was created, in seconds since the epoch. moved is its resource or group, reason the reason of its condition Complete.",
		[]string{"migration", "moved", "phase", "reason"}, nil, metrics.ALPHA, "")
	unfinished = &framework.Collector[*hostingv1alpha1.Migration]{Desc: createdDesc, Metric: createdMetric}

	finished = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace:      "annex",
		Subsystem:      "migration",
		Name:           "finished_total",
		Help:           "Migrations that ended, by result: Completed, Failed or Canceled.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})

	switchSeconds = metrics.NewHistogram(&metrics.HistogramOpts{
		Namespace:      "annex",
		Subsystem:      "migration",
		Name:           "switch_duration_seconds",
		Help:           "Time to switch a resource to its new Store. Writes wait for a part of it.",
		Buckets:        metrics.ExponentialBuckets(0.01, 2, 10),
		StabilityLevel: metrics.ALPHA,
	})

	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.CustomMustRegister(unfinished)
		legacyregistry.MustRegister(finished, switchSeconds)
		// From 0: an increase of a series that appears with its first event is not seen.
		for _, result := range []hostingv1alpha1.MigrationPhase{hostingv1alpha1.MigrationCompleted, hostingv1alpha1.MigrationFailed, hostingv1alpha1.MigrationCanceled} {
			finished.WithLabelValues(string(result))
		}
	})
)

// createdMetric returns the metric of a Migration that has not finished.
func createdMetric(m *hostingv1alpha1.Migration) metrics.Metric {
	if m.Status.Phase.Finished() {
		return nil
	}
	reason := ""
	if complete := meta.FindStatusCondition(m.Status.Conditions, hostingv1alpha1.MigrationComplete); complete != nil {
		reason = complete.Reason
	}
	return metrics.NewLazyConstMetric(createdDesc, metrics.GaugeValue, float64(m.CreationTimestamp.Unix()), m.Name, m.Moved(), string(m.Status.Phase), reason)
}
