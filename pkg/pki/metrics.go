// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"maps"
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// expiries computes the days at each scrape, so that they decrease even if the renewer
// hangs.
type expiries struct {
	metrics.BaseStableCollector

	mu sync.Mutex
	at map[string]time.Time // by certificate
}

var (
	expiryDesc = metrics.NewDesc("annex_certificate_expiration_timestamp_seconds",
		"When a certificate that annex uses or publishes expires, in seconds since the epoch.",
		[]string{"certificate"}, nil, metrics.ALPHA, "")
	daysDesc = metrics.NewDesc("annex_certificate_days_to_expiry",
		"How many days are left until a certificate that annex uses or publishes expires; below zero once it has expired.",
		[]string{"certificate"}, nil, metrics.ALPHA, "")

	observed        = &expiries{at: map[string]time.Time{}}
	registerMetrics = sync.OnceFunc(func() { legacyregistry.CustomMustRegister(observed) })
)

// Observe sets in the metrics when a certificate expires.
func Observe(certificate string, expires time.Time) {
	registerMetrics()
	observed.mu.Lock()
	defer observed.mu.Unlock()
	observed.at[certificate] = expires
}

// Forget removes a certificate from the metrics.
func Forget(certificate string) {
	observed.mu.Lock()
	defer observed.mu.Unlock()
	delete(observed.at, certificate)
}

// DescribeWithStability implements metrics.StableCollector.
func (e *expiries) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- expiryDesc
	ch <- daysDesc
}

// CollectWithStability implements metrics.StableCollector.
func (e *expiries) CollectWithStability(ch chan<- metrics.Metric) {
	e.mu.Lock()
	at := maps.Clone(e.at)
	e.mu.Unlock()
	for certificate, expires := range at {
		ch <- metrics.NewLazyConstMetric(expiryDesc, metrics.GaugeValue, float64(expires.Unix()), certificate)
		ch <- metrics.NewLazyConstMetric(daysDesc, metrics.GaugeValue, time.Until(expires).Hours()/24, certificate)
	}
}

func (f *Files) observe() {
	Observe("ca", f.CAExpiry)
	Observe("serving", f.ServingExpiry)
	Observe("admin", f.AdminExpiry)
}
