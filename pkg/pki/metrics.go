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

// expiries are computed when they are asked for, so that the days go down also
// when whatever renews certificates hangs.
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

// Observe lets the metrics tell when a certificate expires; a later call for the
// same name replaces what an earlier one said.
func Observe(certificate string, expires time.Time) {
	registerMetrics()
	observed.mu.Lock()
	defer observed.mu.Unlock()
	observed.at[certificate] = expires
}

// Forget takes a certificate that is no longer in use out of the metrics.
func Forget(certificate string) {
	observed.mu.Lock()
	defer observed.mu.Unlock()
	delete(observed.at, certificate)
}

// DescribeWithStability tells the registry which metrics there are.
func (e *expiries) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- expiryDesc
	ch <- daysDesc
}

// CollectWithStability is called for each scrape.
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
