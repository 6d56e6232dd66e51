// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"crypto/x509"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/annex-dev/annex/pkg/pki"
)

// loopbackLifetime is longer than a process runs: the certificate exists in its memory only.
const loopbackLifetime = 10 * 365 * 24 * time.Hour

// ApplyToConfig configures serving, and the client of requests that annex sends to itself. Upstream's
// SecureServingOptionsWithLoopback creates two RSA keys for that client's certificate, which took a sixth of
// the CPU time of a start; package pki uses ECDSA.
func (o *Serving) ApplyToConfig(config *genericapiserver.Config) error {
	if err := o.ApplyTo(&config.SecureServing); err != nil {
		return err
	}
	authority, certificate, err := loopbackCertificate(time.Now())
	if err != nil {
		return fmt.Errorf("create the certificate of the loopback client: %w", err)
	}
	serving := config.SecureServing
	// The first that fits a name is used.
	serving.SNICerts = append([]dynamiccertificates.SNICertKeyContentProvider{certificate}, serving.SNICerts...)
	config.LoopbackClientConfig, err = serving.NewLoopbackClientConfig(string(uuid.NewUUID()), authority.CertPEM())
	return err
}

func loopbackCertificate(now time.Time) (*pki.Authority, dynamiccertificates.SNICertKeyContentProvider, error) {
	const name = genericapiserver.LoopbackClientServerNameOverride
	authority, err := pki.NewAuthority("annex loopback", now.Add(-time.Hour), now.Add(loopbackLifetime))
	if err != nil {
		return nil, nil, err
	}
	pair, err := authority.Issue(&x509.Certificate{
		DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, now, loopbackLifetime)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := dynamiccertificates.NewStaticSNICertKeyContent("loopback", pair.CertPEM, pair.KeyPEM, name)
	return authority, certificate, err
}
