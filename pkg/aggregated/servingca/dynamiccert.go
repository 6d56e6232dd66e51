// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package servingca

import (
	"bytes"
	"context"
	"sync"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	"k8s.io/utils/clock"
)

// Source provides the serving certificate behind a main cluster. *Shared and *Provided
// implement it.
type Source interface {
	// CABundle verifies the serving certificate, in PEM.
	CABundle() []byte
	// AddListener registers a function that is called after each change of CABundle.
	AddListener(listener func())
	// ServingCert is the serving certificate and key. The server reloads it.
	ServingCert() dynamiccertificates.CertKeyContentProvider
	// Run renews the certificate until ctx is done.
	Run(ctx context.Context)
}

// Config is common to the Sources.
type Config struct {
	// MainAPIServices are read for their CA bundles.
	MainAPIServices apiregistrationclient.APIServiceInterface
	// Namespace and Name name annex's Service.
	Namespace, Name string
	// Lifetimes must be valid.
	Lifetimes Lifetimes
	// Clock is the real one if nil.
	Clock clock.Clock
}

func (c *Config) setDefaults() {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
}

// serverName is the name that the main cluster verifies.
func (c *Config) serverName() string { return c.Name + "." + c.Namespace + ".svc" }

// dynamicServingCert holds the current certificate, key and bundle. Keys are kept in
// memory only.
type dynamicServingCert struct {
	mu        sync.RWMutex
	bundle    []byte
	cert, key []byte

	bundleListeners []func()
	certListeners   []dynamiccertificates.Listener
}

// CABundle verifies the serving certificate, in PEM.
func (p *dynamicServingCert) CABundle() []byte {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return bytes.Clone(p.bundle)
}

// AddListener registers a function that is called after each change of CABundle.
func (p *dynamicServingCert) AddListener(listener func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bundleListeners = append(p.bundleListeners, listener)
}

// ServingCert is the serving certificate and key.
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
