// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"sync"
	"time"

	k8smetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Results of an attempt to place a resource.
const (
	resultScheduled     = "scheduled"
	resultUnschedulable = "unschedulable"
	resultError         = "error"
)

var (
	attempts = k8smetrics.NewCounterVec(&k8smetrics.CounterOpts{
		Namespace:      "annex",
		Subsystem:      "scheduler",
		Name:           "attempts_total",
		Help:           "Attempts to place a HostedResource, by scheduler and result: scheduled, unschedulable or error.",
		StabilityLevel: k8smetrics.ALPHA,
	}, []string{"scheduler", "result"})

	pending = k8smetrics.NewGaugeVec(&k8smetrics.GaugeOpts{
		Namespace:      "annex",
		Subsystem:      "scheduler",
		Name:           "pending",
		Help:           "HostedResources that wait for a Store, by scheduler and queue: active, backoff or unschedulable.",
		StabilityLevel: k8smetrics.ALPHA,
	}, []string{"scheduler", "queue"})

	decisionSeconds = k8smetrics.NewHistogramVec(&k8smetrics.HistogramOpts{
		Namespace:      "annex",
		Subsystem:      "scheduler",
		Name:           "decision_duration_seconds",
		Help:           "Time to run all filters and scores for all Stores, by scheduler.",
		Buckets:        k8smetrics.ExponentialBuckets(0.00001, 4, 8),
		StabilityLevel: k8smetrics.ALPHA,
	}, []string{"scheduler"})

	registerOnce = sync.OnceFunc(func() { legacyregistry.MustRegister(attempts, pending, decisionSeconds) })
)

// metrics are the metrics of one scheduler.
type metrics struct{ name string }

func newMetrics(name string) metrics {
	registerOnce()
	return metrics{name: name}
}

func (m metrics) attempt(result string) { attempts.WithLabelValues(m.name, result).Inc() }

func (m metrics) decided(took time.Duration) {
	decisionSeconds.WithLabelValues(m.name).Observe(took.Seconds())
}

// waiting counts the resources that wait for a Store. Those that are neither active nor
// unschedulable back off.
func (m metrics) waiting(all, active, unschedulable int) {
	pending.WithLabelValues(m.name, "active").Set(float64(active))
	pending.WithLabelValues(m.name, "backoff").Set(float64(max(all-active-unschedulable, 0)))
	pending.WithLabelValues(m.name, "unschedulable").Set(float64(unschedulable))
}
