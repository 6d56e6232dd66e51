// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

var (
	created = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace:      "annex",
		Subsystem:      "migration",
		Name:           "created_timestamp_seconds",
		Help:           "When a Migration that has not finished was created, in seconds since the epoch. moved is its resource or group, reason the reason of its condition Complete.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"migration", "moved", "phase", "reason"})

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
		legacyregistry.MustRegister(created, finished, switchSeconds)
		// From 0: an increase of a series that appears with its first event is not seen.
		for _, result := range []hostingv1alpha1.MigrationPhase{hostingv1alpha1.MigrationCompleted, hostingv1alpha1.MigrationFailed, hostingv1alpha1.MigrationCanceled} {
			finished.WithLabelValues(string(result))
		}
	})
)

// observe sets the metric of the Migrations that have not finished.
func (c *Controller) observe() {
	all, err := c.migrations.List(labels.Everything())
	if err != nil {
		return // a lister reads memory, and does not fail
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	created.Reset()
	if !c.observed {
		return
	}
	for _, m := range all {
		if m.Status.Phase.Finished() {
			continue
		}
		reason := ""
		if complete := meta.FindStatusCondition(m.Status.Conditions, hostingv1alpha1.MigrationComplete); complete != nil {
			reason = complete.Reason
		}
		created.WithLabelValues(m.Name, m.Moved(), string(m.Status.Phase), reason).Set(float64(m.CreationTimestamp.Unix()))
	}
}

func (c *Controller) setObserved(is bool) {
	c.mu.Lock()
	c.observed = is
	c.mu.Unlock()
	c.observe()
}
