// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostinglisters "github.com/annex-dev/annex/pkg/generated/listers/hosting/v1alpha1"
)

var (
	createdDesc = metrics.NewDesc("annex_migration_created_timestamp_seconds",
		"When a Migration that has not finished was created, in seconds since the epoch. moved is its resource or group, reason the reason of its condition Complete.",
		[]string{"migration", "moved", "phase", "reason"}, nil, metrics.ALPHA, "")
	unfinished = &unfinishedCollector{}

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

// unfinishedCollector reads the Migrations that have not finished at each scrape, while a controller runs.
type unfinishedCollector struct {
	metrics.BaseStableCollector

	migrations atomic.Pointer[hostinglisters.MigrationLister]
}

// DescribeWithStability implements metrics.StableCollector.
func (u *unfinishedCollector) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- createdDesc }

// CollectWithStability implements metrics.StableCollector.
func (u *unfinishedCollector) CollectWithStability(ch chan<- metrics.Metric) {
	lister := u.migrations.Load()
	if lister == nil {
		return
	}
	all, err := (*lister).List(labels.Everything())
	if err != nil {
		return // a lister reads memory, and does not fail
	}
	for _, m := range all {
		if m.Status.Phase.Finished() {
			continue
		}
		reason := ""
		if complete := meta.FindStatusCondition(m.Status.Conditions, hostingv1alpha1.MigrationComplete); complete != nil {
			reason = complete.Reason
		}
		ch <- metrics.NewLazyConstMetric(createdDesc, metrics.GaugeValue, float64(m.CreationTimestamp.Unix()), m.Name, m.Moved(), string(m.Status.Phase), reason)
	}
}
