// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package servingca

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/pki"
)

// pollInterval is the time between two reads of the files. A mounted Secret changes through
// symlinks that file notifications miss.
const pollInterval = 5 * time.Second

// ProvidedConfig is the configuration of a Provided.
type ProvidedConfig struct {
	// Config has Lifetimes, of which only the propagation time is used.
	Config
	// CertFile and KeyFile are --tls-cert-file and --tls-private-key-file.
	CertFile, KeyFile string
	// CAFile is --publish-ca-file.
	CAFile string
}

// Provided is a certificate that another tool issues and renews, with the authorities
// that verify it.
//
// A certificate of an authority that was published before is served at once, one of a
// new authority only after every APIService has had it for the propagation time: no
// request fails, even if all files are replaced together, as cert-manager does.
type Provided struct {
	dynamicServingCert

	config ProvidedConfig

	// These fields belong to Run after Open.
	read     [3][]byte // the files as last read
	wanted   provided  // what they have in them, when that is good
	served   provided  // what annex serves
	servedAt time.Time
	// published is the bundle, settled the part of it that the main cluster has had for
	// the propagation time; propagatedSince is the time from which all of it was propagated.
	published, settled []*x509.Certificate
	propagatedSince    time.Time
}

type provided struct {
	chain     []*x509.Certificate // of the server, then intermediates
	cert, key []byte
	bundle    []*x509.Certificate
}

var _ Source = &Provided{}

// OpenProvided reads the files and checks that they match each other and the Service.
func OpenProvided(config ProvidedConfig) (*Provided, error) {
	config.setDefaults()
	p := &Provided{config: config}
	if err := p.reload(); err != nil {
		return nil, err
	}
	observeRefused(false)
	p.settled = p.wanted.bundle
	p.publish(klog.Background(), p.wanted.bundle)
	p.serve(klog.Background())
	return p, nil
}

// Run reads the files periodically until ctx is done. An invalid file is logged once,
// and annex keeps its previous content.
func (p *Provided) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	var told string
	timer := p.config.Clock.NewTimer(min(pollInterval, p.config.Lifetimes.interval()))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
		}
		err := p.sync(ctx)
		switch {
		case err == nil:
			told = ""
		case ctx.Err() == nil && err.Error() != told:
			told = err.Error()
			logger.Error(err, "Could not use the provided certificate, keeping the previous one")
		}
		timer.Reset(min(pollInterval, p.config.Lifetimes.interval()))
	}
}

func (p *Provided) sync(ctx context.Context) error {
	refused := p.reload()
	observeRefused(refused != nil)
	// The previous content is still published and served.
	return errors.Join(refused, p.settle(ctx))
}

// reload reads the files. Only valid content becomes wanted.
func (p *Provided) reload() error {
	var read [3][]byte
	for i, file := range []struct{ flag, path string }{
		{"--tls-cert-file", p.config.CertFile}, {"--tls-private-key-file", p.config.KeyFile}, {"--publish-ca-file", p.config.CAFile},
	} {
		var err error
		if read[i], err = os.ReadFile(file.path); err != nil {
			return fmt.Errorf("%s: %w", file.flag, err)
		}
	}
	if p.wanted.chain != nil && slices.EqualFunc(p.read[:], read[:], bytes.Equal) {
		return nil
	}
	wanted, err := p.parse(read)
	if err != nil {
		return err
	}
	p.read, p.wanted = read, wanted
	return nil
}

func (p *Provided) parse(read [3][]byte) (provided, error) {
	now := p.config.Clock.Now()
	if err := pki.CheckServingContent(p.config.CertFile, p.config.KeyFile, read[0], read[1], now); err != nil {
		return provided{}, err
	}
	chain, err := pki.ParseBundle(read[0])
	if err != nil {
		return provided{}, fmt.Errorf("--tls-cert-file %s: %w", p.config.CertFile, err)
	}
	bundle, err := pki.ParseBundle(read[2])
	if err != nil {
		return provided{}, fmt.Errorf("--publish-ca-file %s: %w", p.config.CAFile, err)
	}
	wanted := provided{chain: chain, cert: read[0], key: read[1], bundle: union(nil, bundle)}
	if err := p.verify(wanted.chain, bundle); err != nil {
		return provided{}, fmt.Errorf("--publish-ca-file %s does not verify --tls-cert-file %s for %s, the name of --publish-service: %w",
			p.config.CAFile, p.config.CertFile, p.config.serverName(), err)
	}
	return wanted, nil
}

// settle publishes and serves the wanted content as far as that is safe. The previous
// authorities stay in the bundle until every replica has had the time to serve the new
// certificate.
func (p *Provided) settle(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	if merged := union(p.published, p.wanted.bundle); len(merged) > len(p.published) {
		p.publish(logger, merged)
	}
	err := p.waitForPropagation(ctx)
	now, propagation := p.config.Clock.Now(), p.config.Lifetimes.Propagation
	expires := p.served.chain[0].NotAfter
	if p.verify(p.wanted.chain, p.settled) == nil || !now.Before(expires.Add(-propagation)) {
		p.serve(logger)
	}
	done := bytes.Equal(p.served.cert, p.wanted.cert) && len(p.settled) == len(p.published)
	if done && len(p.published) > len(p.wanted.bundle) && now.Sub(p.servedAt) >= propagation {
		p.settled = p.wanted.bundle
		p.publish(logger, p.wanted.bundle)
	}
	return err
}

// waitForPropagation checks whether, and since when, the main cluster has the whole
// bundle.
func (p *Provided) waitForPropagation(ctx context.Context) error {
	if len(p.settled) == len(p.published) {
		return nil
	}
	everywhere, err := p.config.isPropagated(ctx, p.published)
	now := p.config.Clock.Now()
	switch {
	case err != nil:
		return err
	case !everywhere:
		p.propagatedSince = time.Time{}
	case p.propagatedSince.IsZero():
		p.propagatedSince = now
	case now.Sub(p.propagatedSince) >= p.config.Lifetimes.Propagation:
		p.settled = p.published
	}
	return nil
}

func (p *Provided) publish(logger klog.Logger, bundle []*x509.Certificate) {
	p.published, p.propagatedSince = bundle, time.Time{}
	p.setBundle(pki.EncodeBundle(bundle))
	observe(caMetric, first(bundle))
	logger.V(2).Info("Publishing authorities", "count", len(bundle), "file", p.config.CAFile)
}

func (p *Provided) serve(logger klog.Logger) {
	if bytes.Equal(p.served.cert, p.wanted.cert) && bytes.Equal(p.served.key, p.wanted.key) {
		return
	}
	p.served, p.servedAt = p.wanted, p.config.Clock.Now()
	p.setCert(p.served.cert, p.served.key)
	observe(servingMetric, p.served.chain[0])
	logger.V(2).Info("Serving the provided certificate", "expires", p.served.chain[0].NotAfter, "file", p.config.CertFile)
}

func (p *Provided) verify(chain, authorities []*x509.Certificate) error {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, authority := range authorities {
		roots.AddCert(authority)
	}
	for _, intermediate := range chain[1:] {
		intermediates.AddCert(intermediate)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		DNSName: p.config.serverName(), Roots: roots, Intermediates: intermediates, CurrentTime: p.config.Clock.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

func union(a, b []*x509.Certificate) []*x509.Certificate {
	all := slices.Clone(a)
	for _, certificate := range b {
		if !slices.ContainsFunc(all, certificate.Equal) {
			all = append(all, certificate)
		}
	}
	return all
}

// first is the certificate that expires first.
func first(certificates []*x509.Certificate) *x509.Certificate {
	return slices.MinFunc(certificates, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
}
