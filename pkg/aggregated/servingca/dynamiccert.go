// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package servingca

import (
	"bytes"
	"context"
	"sync"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// Source is what annex serves with behind a main cluster. A *Shared and a
// *Provided are one.
type Source interface {
	// CABundle is what the main cluster verifies annex with, in PEM.
	CABundle() []byte
	// AddListener has listener called whenever CABundle changes.
	AddListener(listener func())
	// ServingCert is the certificate and key that annex serves with. The server
	// takes up a new one while it runs.
	ServingCert() dynamiccertificates.CertKeyContentProvider
	// Run keeps all that right until ctx is done.
	Run(ctx context.Context)
}

// dynamicServingCert holds what a Source makes known. Keys are kept in memory only.
type dynamicServingCert struct {
	mu        sync.RWMutex
	bundle    []byte
	cert, key []byte

	bundleListeners []func()
	certListeners   []dynamiccertificates.Listener
}

// CABundle is what the main cluster verifies annex with, in PEM.
func (p *dynamicServingCert) CABundle() []byte {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return bytes.Clone(p.bundle)
}

// AddListener has listener called whenever CABundle changes.
func (p *dynamicServingCert) AddListener(listener func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bundleListeners = append(p.bundleListeners, listener)
}

// ServingCert is the certificate and key that annex serves with.
func (p *dynamicServingCert) ServingCert() dynamiccertificates.CertKeyContentProvider {
	return servingCert{p}
}

func (p *dynamicServingCert) setBundle(bundle []byte) {
	p.mu.Lock()
	changed := !bytes.Equal(p.bundle, bundle)
	p.bundle = bundle
	listeners := p.bundleListeners
	p.mu.Unlock()
	if changed {
		for _, listener := range listeners {
			listener()
		}
	}
}

func (p *dynamicServingCert) setCert(cert, key []byte) {
	p.mu.Lock()
	p.cert, p.key = cert, key
	listeners := p.certListeners
	p.mu.Unlock()
	for _, listener := range listeners {
		listener.Enqueue()
	}
}

// servingCert is how upstream's server asks for the certificate.
type servingCert struct{ of *dynamicServingCert }

func (servingCert) Name() string { return "published-serving-cert" }

func (s servingCert) CurrentCertKeyContent() (cert, key []byte) {
	s.of.mu.RLock()
	defer s.of.mu.RUnlock()
	return s.of.cert, s.of.key
}

func (s servingCert) AddListener(listener dynamiccertificates.Listener) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.certListeners = append(s.of.certListeners, listener)
}
