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

// The names of certificates in the metrics of package pki.
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
	Help: "1 while the Secret or the files of the published certificate are invalid " +
		"and annex keeps the previous content, 0 otherwise.",
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

// observe sets the metrics of a certificate, or removes them.
func observe(name string, certificate *x509.Certificate) {
	if certificate == nil {
		pki.Forget(name)
		return
	}
	pki.Observe(name, certificate.NotAfter)
}
