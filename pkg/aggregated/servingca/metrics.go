// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package servingca

import (
	"crypto/x509"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/annex-dev/annex/pkg/pki"
)

// The names that certificates have in the metrics of package pki.
const (
	servingMetric    = "published-serving"
	caMetric         = "published-ca"
	nextCAMetric     = "published-ca-next"
	previousCAMetric = "published-ca-previous"
)

var refused = metrics.NewGauge(&metrics.GaugeOpts{
	Namespace: "annex",
	Subsystem: "published_certificate",
	Name:      "refused",
	Help: "1 while what the Secret or the files of the published certificate contain is refused " +
		"and annex goes on with what it had, 0 otherwise.",
	StabilityLevel: metrics.ALPHA,
})

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(refused) })

func observeRefused(is bool) {
	registerMetrics()
	value := 0.0
	if is {
		value = 1
	}
	refused.Set(value)
}

// observe tells of a certificate, or of none.
func observe(name string, certificate *x509.Certificate) {
	if certificate == nil {
		pki.Forget(name)
		return
	}
	pki.Observe(name, certificate.NotAfter)
}
