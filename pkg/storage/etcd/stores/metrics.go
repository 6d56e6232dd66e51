// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

func gauge(name, help string) *metrics.GaugeVec {
	return metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "annex", Subsystem: "store", Name: name, Help: help, StabilityLevel: metrics.ALPHA,
	}, []string{"store"})
}

var (
	available          = gauge("available", "Whether requests to the store pass: 1, or 0 while they are refused.")
	writable           = gauge("writable", "Whether the store takes writes: 1, or 0 while it is unavailable or out of space, also on its volume.")
	size               = gauge("size_bytes", "The space that the store's database takes on disk, that of the largest member.")
	sizeInUse          = gauge("size_in_use_bytes", "The part of the size that holds data.")
	quota              = gauge("quota_bytes", "The size at which the store stops taking writes; absent where etcd does not tell.")
	diskFree           = gauge("disk_free_bytes", "The free space of the volume of --data-dir; only of the etcd inside annex.")
	endpointsDown      = gauge("endpoints_down", "How many of the store's endpoints do not answer.")
	roundTrip          = gauge("round_trip_seconds", "How long the last quorum read of the store's probe took.")
	certificateExpires = gauge("client_certificate_expiration_timestamp_seconds", "When the client certificate for the store expires; absent without one.")

	requests = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: "annex", Subsystem: "store", Name: "request_duration_seconds",
		Help:           "How long requests to the store took, by what was asked.",
		Buckets:        metrics.ExponentialBuckets(0.001, 2, 14),
		StabilityLevel: metrics.ALPHA,
	}, []string{"store", "operation"})
	failures = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "annex", Subsystem: "store", Name: "request_errors_total",
		Help:           "How many requests to the store failed, by what was asked. Those that were refused at once are among them.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"store", "operation"})

	gauges          = []*metrics.GaugeVec{available, writable, size, sizeInUse, quota, diskFree, endpointsDown, roundTrip, certificateExpires}
	registerMetrics = sync.OnceFunc(func() {
		for _, g := range gauges {
			legacyregistry.MustRegister(g)
		}
		legacyregistry.MustRegister(requests, failures)
	})
)

// operations are the values of the label operation.
var operations = []string{"get", "stream", "put", "delete", "txn", "compact", "lease"}

// storeMetrics are the metrics of one Store.
type storeMetrics struct {
	store     string
	durations map[string]metrics.ObserverMetric
	errors    map[string]metrics.CounterMetric
}

func newStoreMetrics(store string) *storeMetrics {
	registerMetrics()
	m := &storeMetrics{store: store, durations: map[string]metrics.ObserverMetric{}, errors: map[string]metrics.CounterMetric{}}
	for _, operation := range operations {
		m.durations[operation] = requests.WithLabelValues(store, operation)
		m.errors[operation] = failures.WithLabelValues(store, operation)
	}
	return m
}

// observe starts to measure a request; the result ends it.
func (m *storeMetrics) observe(operation string) func(err *error) {
	begin := time.Now()
	return func(err *error) {
		m.durations[operation].Observe(time.Since(begin).Seconds())
		if *err != nil {
			m.errors[operation].Inc()
		}
	}
}

// refused counts a request that was not sent to etcd.
func (m *storeMetrics) refused(operation string) { m.errors[operation].Inc() }

// set sets the gauges from a probe.
func (m *storeMetrics) set(seen *Snapshot) {
	available.WithLabelValues(m.store).Set(number(seen.Unavailable == nil))
	writable.WithLabelValues(m.store).Set(number(seen.Unavailable == nil && !seen.NoSpace))
	down := 0
	for _, answer := range seen.Endpoints {
		if answer.Err != nil {
			down++
		}
	}
	endpointsDown.WithLabelValues(m.store).Set(float64(down))
	if largest := seen.Largest(); largest != nil {
		size.WithLabelValues(m.store).Set(float64(largest.DbSize))
		sizeInUse.WithLabelValues(m.store).Set(float64(largest.DbSizeInUse))
		if largest.DbSizeQuota > 0 {
			quota.WithLabelValues(m.store).Set(float64(largest.DbSizeQuota))
		}
	}
	if seen.Disk.Size > 0 {
		diskFree.WithLabelValues(m.store).Set(float64(seen.Disk.Free))
	}
	if seen.readErr == nil {
		roundTrip.WithLabelValues(m.store).Set(seen.RoundTrip.Seconds())
	}
	if !seen.CertificateExpires.IsZero() {
		certificateExpires.WithLabelValues(m.store).Set(float64(seen.CertificateExpires.Unix()))
	}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// forget removes the metrics of a deleted Store.
func (m *storeMetrics) forget() {
	for _, g := range gauges {
		g.DeleteLabelValues(m.store)
	}
	for _, operation := range operations {
		requests.DeleteLabelValues(m.store, operation)
		failures.DeleteLabelValues(m.store, operation)
	}
}
