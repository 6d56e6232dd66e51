// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// expiry is a time rather than a rest of time, so that it is true also when the
// renewer hangs; alerts subtract time().
var expiry = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace:      "annex",
	Subsystem:      "certificate",
	Name:           "expiration_timestamp_seconds",
	Help:           "When a certificate that annex made for itself expires, in seconds since the epoch.",
	StabilityLevel: metrics.ALPHA,
}, []string{"certificate"})

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(expiry) })

func (f *Files) observe() {
	registerMetrics()
	for name, at := range map[string]time.Time{"ca": f.CAExpiry, "serving": f.ServingExpiry, "admin": f.AdminExpiry} {
		expiry.WithLabelValues(name).Set(float64(at.Unix()))
	}
}
