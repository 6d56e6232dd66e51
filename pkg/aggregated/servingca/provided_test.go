// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package servingca

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/annex-dev/annex/pkg/pki"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const serviceName = "annex.annex-system.svc"

// brought are files that another tool maintains.
type brought struct {
	t     *testing.T
	dir   string
	clock *clocktesting.FakeClock
	main  *mainFake
}

func bring(t *testing.T) *brought {
	t.Helper()
	main := newMainFake(ours("v1.a", nil))
	return &brought{t, t.TempDir(), main.clock, main}
}

// bringOpen is bring with what the first of two authorities signed, opened.
func bringOpen(t *testing.T) (b *brought, p *Provided, first, second *pki.Authority) {
	t.Helper()
	b = bring(t)
	first, second = b.ca("first"), b.ca("second")
	b.cert(first, serviceName)
	b.bundle(first)
	p, err := b.open()
	expect.NoError(t, err)
	return b, p, first, second
}

func (b *brought) path(name string) string { return filepath.Join(b.dir, name) }

func (b *brought) write(name string, content []byte) {
	b.t.Helper()
	expect.NoError(b.t, os.WriteFile(b.path(name), content, 0o600))
}

func (b *brought) ca(name string) *pki.Authority {
	b.t.Helper()
	ca, err := pki.NewAuthority(name, epoch.Add(-time.Hour), epoch.Add(10000*time.Hour))
	expect.NoError(b.t, err)
	return ca
}

// cert signs a certificate of the CA and writes it.
func (b *brought) cert(ca *pki.Authority, names ...string) {
	b.t.Helper()
	pair, err := ca.Issue(pki.ServingTemplate(nil, names...), b.clock.Now(), 100*time.Hour)
	expect.NoError(b.t, err)
	b.write("tls.crt", pair.CertPEM)
	b.write("tls.key", pair.KeyPEM)
}

func (b *brought) bundle(cas ...*pki.Authority) []byte {
	b.t.Helper()
	raw := bundleOf(cas...)
	b.write("ca.crt", raw)
	return raw
}

func bundleOf(cas ...*pki.Authority) []byte {
	var certificates []*x509.Certificate
	for _, ca := range cas {
		certificates = append(certificates, ca.Certificate())
	}
	return pki.EncodeBundle(certificates)
}

func (b *brought) open() (*Provided, error) {
	return OpenProvided(ProvidedConfig{Config: b.main.config(), CertFile: b.path("tls.crt"), KeyFile: b.path("tls.key"), CAFile: b.path("ca.crt")})
}

// carry makes the main cluster's APIService carry what is published.
func (b *brought) carry(p *Provided) {
	b.t.Helper()
	expect.Update(b.t, b.main.aggregator.ApiregistrationV1().APIServices(), ours("v1.a", p.CABundle()))
}

// check passes time and compares what is served and published.
func (b *brought) check(p *Provided, what string, step time.Duration, issuer *pki.Authority, cas ...*pki.Authority) {
	b.t.Helper()
	b.clock.Step(step)
	expect.Succeeds(b.t, p.sync(b.t.Context()), "%s", what)
	b.look(p, what, issuer, cas...)
}

func (b *brought) look(p *Provided, what string, issuer *pki.Authority, cas ...*pki.Authority) {
	b.t.Helper()
	cert, _ := p.ServingCert().CurrentCertKeyContent()
	chain, err := pki.ParseBundle(cert)
	expect.NoError(b.t, err)
	if got, want := chain[0].Issuer.CommonName, issuer.Certificate().Subject.CommonName; got != want {
		b.t.Errorf("%s: a certificate of %s is served, want %s", what, got, want)
	}
	published, err := pki.ParseBundle(p.CABundle())
	expect.NoError(b.t, err)
	want, err := pki.ParseBundle(bundleOf(cas...))
	expect.NoError(b.t, err)
	if !slices.Equal(subjects(published), subjects(want)) {
		b.t.Errorf("%s: %v are published, want %v", what, subjects(published), subjects(want))
	}
}

func TestOpenProvidedRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		damage func(*brought)
		want   []string
	}{
		"bundle of another CA": {func(b *brought) { b.bundle(b.ca("other")) },
			[]string{"--publish-ca-file ", "ca.crt does not verify --tls-cert-file ", "for annex.annex-system.svc, the name of --publish-service", "unknown authority"}},
		"certificate for another name": {func(b *brought) {
			ca := b.ca("other")
			b.cert(ca, "annex.elsewhere.svc")
			b.bundle(ca)
		}, []string{"does not verify --tls-cert-file", "valid for annex.elsewhere.svc", "not annex.annex-system.svc"}},
		"expired":        {func(b *brought) { b.clock.Step(101 * time.Hour) }, []string{"--tls-cert-file", "expired on"}},
		"no bundle":      {func(b *brought) { _ = os.Remove(b.path("ca.crt")) }, []string{"--publish-ca-file", "no such file"}},
		"junk bundle":    {func(b *brought) { b.write("ca.crt", []byte("junk")) }, []string{"--publish-ca-file", "ca.crt: contains no PEM certificate"}},
		"no certificate": {func(b *brought) { _ = os.Remove(b.path("tls.crt")) }, []string{"--tls-cert-file", "no such file"}},
		"key of another": {func(b *brought) {
			cert, _ := os.ReadFile(b.path("tls.crt"))
			b.cert(b.ca("x"))
			b.write("tls.crt", cert)
		}, []string{"--tls-private-key-file", "cannot be used with"}},
		"client's usage": {func(b *brought) { b.client() }, []string{"does not verify", "incompatible key usage"}},
		"damaged in bundle": {func(b *brought) {
			b.write("ca.crt", []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
		}, []string{"--publish-ca-file", "certificate 1 is damaged"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bring(t)
			ca := b.ca("good")
			b.cert(ca, serviceName)
			b.bundle(ca)
			_, err := b.open()
			expect.NoError(t, err)
			tt.damage(b)
			_, err = b.open()
			expect.Error(t, err, tt.want...)
		})
	}
}

// client writes a pair that only a client can use.
func (b *brought) client() {
	b.t.Helper()
	ca := b.ca("clients")
	template := pki.ServingTemplate(nil, serviceName)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	pair, err := ca.Issue(template, epoch, time.Hour)
	expect.NoError(b.t, err)
	b.write("tls.crt", pair.CertPEM)
	b.write("tls.key", pair.KeyPEM)
	b.bundle(ca)
}

func TestProvidedIsRenewed(t *testing.T) {
	t.Parallel()
	b := bring(t)
	ca := b.ca("one")
	b.cert(ca, serviceName)
	b.bundle(ca)
	p, err := b.open()
	expect.NoError(t, err)
	before, _ := p.ServingCert().CurrentCertKeyContent()
	served := &counter{}
	p.ServingCert().AddListener(served)
	b.check(p, "nothing changed", time.Hour, ca, ca)
	b.cert(ca, serviceName)
	b.check(p, "renewed by the same CA", time.Second, ca, ca)
	if after, _ := p.ServingCert().CurrentCertKeyContent(); string(after) == string(before) || served.n != 1 {
		t.Errorf("a certificate of the same CA is not served at once; the server was notified %d times", served.n)
	}
}

func TestProvidedMovesToAnotherCA(t *testing.T) {
	t.Parallel()
	b, p, first, second := bringOpen(t)
	b.carry(p)
	// All files in one go, as a mounted Secret changes.
	b.cert(second, serviceName)
	b.bundle(second)
	b.check(p, "changed", time.Second, first, first, second)
	b.check(p, "not distributed", 2*time.Hour, first, first, second)
	b.carry(p)
	b.check(p, "distributed since now", time.Second, first, first, second)
	b.check(p, "distributed", time.Hour, second, first, second)
	b.check(p, "other replicas follow", 59*time.Minute, second, first, second)
	b.check(p, "done", time.Minute, second, second)
}

func TestProvidedMovesToAnotherCAInSteps(t *testing.T) {
	t.Parallel()
	b, p, first, second := bringOpen(t)
	b.bundle(first, second)
	b.check(p, "bundle with both", time.Second, first, first, second)
	b.carry(p)
	b.check(p, "distributed since now", time.Second, first, first, second)
	b.check(p, "distributed", time.Hour, first, first, second)
	b.cert(second, serviceName)
	b.check(p, "the certificate follows at once", time.Second, second, first, second)
	b.check(p, "both stay, as in the file", 5*time.Hour, second, first, second)
	b.bundle(second)
	b.check(p, "the first is taken out", time.Second, second, second)
}

func TestProvidedKeepsTheOldOne(t *testing.T) {
	t.Parallel()
	b, p, first, second := bringOpen(t)
	good, goodKey := read(t, b.path("tls.crt")), read(t, b.path("tls.key"))
	bad := map[string]func(){
		"certificate of another CA":    func() { b.cert(second, serviceName) },
		"bundle of another CA":         func() { b.bundle(second) },
		"certificate for another name": func() { b.cert(first, "else.annex-system.svc") },
		"half a certificate":           func() { b.write("tls.crt", []byte(good[:100])) },
		"empty bundle":                 func() { b.write("ca.crt", nil) },
		"no key":                       func() { _ = os.Remove(b.path("tls.key")) },
	}
	for name, change := range bad {
		change()
		b.clock.Step(time.Second)
		if err := p.sync(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
		b.look(p, name, first, first)
		b.write("tls.crt", []byte(good))
		b.write("tls.key", []byte(goodKey))
		b.bundle(first)
		b.check(p, "after "+name, time.Second, first, first)
	}
}

func TestProvidedDoesNotLetTheOldOneExpire(t *testing.T) {
	t.Parallel()
	b, p, first, second := bringOpen(t)
	b.clock.Step(98 * time.Hour)
	b.cert(second, serviceName)
	b.bundle(second)
	b.check(p, "no APIService has it", time.Second, first, first, second)
	b.check(p, "but the old one expires within the propagation time", time.Hour, second, first, second)
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	expect.NoError(t, err)
	return string(raw)
}
