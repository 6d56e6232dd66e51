// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	expiration = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "annex", Subsystem: "certificate", Name: "expiration_timestamp_seconds", StabilityLevel: metrics.ALPHA,
		Help: "When a certificate that annex uses or publishes expires, in seconds since the epoch.",
	}, []string{"certificate"})

	registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(expiration) })
)

// Observe sets in the metrics when a certificate expires.
func Observe(certificate string, expires time.Time) {
	registerMetrics()
	expiration.WithLabelValues(certificate).Set(float64(expires.Unix()))
}

// Forget removes a certificate from the metrics.
func Forget(certificate string) {
	expiration.DeleteLabelValues(certificate)
}

func (f *Files) observe() {
	Observe("ca", f.CAExpiry)
	Observe("serving", f.ServingExpiry)
	Observe("admin", f.AdminExpiry)
}
