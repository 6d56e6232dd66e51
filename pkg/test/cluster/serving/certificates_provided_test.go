// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/annex-dev/annex/pkg/pki"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// mount is a directory like a Secret volume of a kubelet: the files are symbolic links that
// change at once.
type mount struct {
	dir      string
	versions int
}

func newMount(t *testing.T) *mount { return &mount{dir: t.TempDir()} }

func (m *mount) path(name string) string { return filepath.Join(m.dir, name) }

func (m *mount) flags() []string {
	return []string{
		"--tls-cert-file=" + m.path("tls.crt"), "--tls-private-key-file=" + m.path("tls.key"), "--publish-ca-file=" + m.path("ca.crt"),
		"--serving-ca-propagation=1s",
	}
}

// replace writes a new certificate of the signer, and a bundle of the given CAs.
func (m *mount) replace(t *testing.T, signer *pki.Authority, bundle ...*pki.Authority) {
	t.Helper()
	m.replaceFor(t, year, signer, bundle...)
}

// replaceFor is replace with a certificate that is valid for the given time.
func (m *mount) replaceFor(t *testing.T, validity time.Duration, signer *pki.Authority, bundle ...*pki.Authority) {
	t.Helper()
	pair, err := signer.Issue(pki.ServingTemplate(nil, serverName), time.Now(), validity)
	expect.NoError(t, err)
	m.versions++
	version := fmt.Sprintf("..version-%d", m.versions)
	expect.NoError(t, os.Mkdir(m.path(version), 0o700))
	for name, content := range map[string][]byte{"tls.crt": pair.CertPEM, "tls.key": pair.KeyPEM, "ca.crt": bundleOf(bundle...)} {
		expect.NoError(t, os.WriteFile(filepath.Join(m.path(version), name), content, 0o600))
		if m.versions == 1 {
			expect.NoError(t, os.Symlink(filepath.Join("..data", name), m.path(name)))
		}
	}
	expect.NoError(t, os.Symlink(version, m.path("..data-next")))
	expect.NoError(t, os.Rename(m.path("..data-next"), m.path("..data")))
}

const year = 365 * 24 * time.Hour

func newCA(t *testing.T, name string) *pki.Authority {
	t.Helper()
	ca, err := pki.NewAuthority(name, time.Now().Add(-time.Hour), time.Now().Add(2*year))
	expect.NoError(t, err)
	return ca
}

func bundleOf(cas ...*pki.Authority) []byte {
	var certificates []*x509.Certificate
	for _, ca := range cas {
		certificates = append(certificates, ca.Certificate())
	}
	return pki.EncodeBundle(certificates)
}

// TestProvidedCertificate replaces a provided certificate on disk: with the same CA, with a new
// CA in two steps, and with a new CA in one.
func TestProvidedCertificate(t *testing.T) {
	files, first, second, third := newMount(t), newCA(t, "first"), newCA(t, "second"), newCA(t, "third")
	files.replace(t, first, first)
	annex := annextest.Start(t, mainCluster, files.flags()...)
	load := startConnections(t, annex.Installation)
	settle := func(what string, signer *pki.Authority, bundle ...*pki.Authority) {
		t.Helper()
		want := bundleOf(bundle...)
		poll.UntilDone(t, what, func() (bool, string) {
			bundled := getAPIService(t, hostingName).Spec.CABundle
			issuer, err := handshake(t.Context(), annex.Address(), bundled)
			done := err == nil && bytes.Equal(bundled, want) && issuer == signer.Certificate().Subject.CommonName
			return done, fmt.Sprintf("a certificate of %q is served (%v); the APIService has\n%s", issuer, err, bundled)
		})
	}
	settle("the first", first, first)
	files.replace(t, first, first)
	settle("renewed", first, first)
	files.replace(t, first, first, second)
	settle("a second CA in the bundle", first, first, second)
	files.replace(t, second, first, second)
	settle("a certificate of the second CA", second, first, second)
	files.replace(t, second, second)
	settle("the second CA alone", second, second)
	files.replace(t, third, third)
	settle("certificate and CA at once", third, third)
	load.end(t, 3)

	files.replace(t, third, first)
	poll.UntilDone(t, "a bundle that does not verify the certificate is refused", func() (bool, string) {
		text := metrics(t, annex)
		return strings.Contains(text, "\nannex_published_certificate_refused 1\n"), grep(text, "annex_published")
	})
	settle("the valid certificate stays", third, third)
}

// TestInvalidProvidedCertificate: annex refuses to start.
func TestInvalidProvidedCertificate(t *testing.T) {
	installation := annextest.InstallForTest(t, mainCluster)
	files := newMount(t)
	files.replace(t, newCA(t, "one"), newCA(t, "another"))
	tests := map[string]struct{ flags, want []string }{
		"bundle of another CA": {files.flags(), []string{"--publish-ca-file " + files.path("ca.crt"), "does not verify --tls-cert-file", serverName, "--publish-service"}},
		"no bundle":            {files.flags()[:2], []string{"--tls-cert-file needs --publish-ca-file"}},
	}
	for name, tt := range tests {
		replica, err := installation.Launch(t.TempDir(), tt.flags...)
		if err == nil {
			replica.Stop(t)
			t.Errorf("%s: annex started", name)
			continue
		}
		expect.Error(t, err, tt.want...)
	}
}
