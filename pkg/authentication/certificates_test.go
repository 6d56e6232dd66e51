// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/annex-dev/annex/pkg/pki"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// bundle is a bundle of CAs that tests change.
type bundle struct {
	dynamiccertificates.CAContentProvider
	content []byte
}

func (b *bundle) CurrentCABundleContent() []byte { return b.content }

// issuer is a certificate with its key.
type issuer struct {
	*x509.Certificate
	key *ecdsa.PrivateKey
}

// issue returns a certificate that the issuer signs, or a root without one.
func (i *issuer) issue(t *testing.T, name string, isCA bool, lifetime time.Duration, usage x509.ExtKeyUsage) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	expect.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lifetime),
		BasicConstraintsValid: true, IsCA: isCA, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	parent := issuer{template, key}
	if i != nil {
		parent = *i
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.Certificate, key.Public(), parent.key)
	expect.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	expect.NoError(t, err)
	return &issuer{certificate, key}
}

func (i *issuer) bundle() *bundle {
	return &bundle{content: pki.EncodeBundle([]*x509.Certificate{i.Certificate})}
}

// login authenticates with a chain, and returns the name of the user, empty for none.
func login(c *certificates, chain ...*issuer) (string, error) {
	response, ok, err := respond(c, chain...)
	if !ok || err != nil {
		return "", err
	}
	return response.User.GetName(), nil
}

func respond(c authenticator.Request, chain ...*issuer) (*authenticator.Response, bool, error) {
	req := &http.Request{TLS: &tls.ConnectionState{}}
	for _, certificate := range chain {
		req.TLS.PeerCertificates = append(req.TLS.PeerCertificates, certificate.Certificate)
	}
	return c.AuthenticateRequest(req)
}

const client, server = x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth

// TestCertificates compares the first request with a certificate and a second one with upstream.
func TestCertificates(t *testing.T) {
	t.Parallel()
	root := (*issuer)(nil).issue(t, "root", true, time.Hour, x509.ExtKeyUsageAny)
	stranger := (*issuer)(nil).issue(t, "root", true, time.Hour, x509.ExtKeyUsageAny)
	middle := root.issue(t, "middle", true, time.Hour, x509.ExtKeyUsageAny)
	servers := root.issue(t, "servers", true, time.Hour, server)
	for name, test := range map[string]struct {
		chain      []*issuer
		remembered bool
	}{
		"a certificate of the root":             {[]*issuer{root.issue(t, "alice", false, time.Hour, client)}, true},
		"one with an intermediate":              {[]*issuer{middle.issue(t, "alice", false, time.Hour, client), middle}, true},
		"without its intermediate":              {[]*issuer{middle.issue(t, "alice", false, time.Hour, client)}, false},
		"without a name":                        {[]*issuer{root.issue(t, "", false, time.Hour, client)}, false},
		"expired":                               {[]*issuer{root.issue(t, "alice", false, -time.Minute, client)}, false},
		"of a server":                           {[]*issuer{root.issue(t, "alice", false, time.Hour, server)}, false},
		"an intermediate that is for servers":   {[]*issuer{servers.issue(t, "alice", false, time.Hour, client), servers}, false},
		"a root of the same name":               {[]*issuer{stranger.issue(t, "alice", false, time.Hour, client)}, false},
		"the root itself":                       {[]*issuer{root}, true},
		"a root of the same name, sent as well": {[]*issuer{stranger.issue(t, "alice", false, time.Hour, client), stranger}, false},
		"no certificate":                        {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &certificates{ca: root.bundle()}
			trusted, err := c.current()
			expect.NoError(t, err)
			want, wantOK, wantErr := respond(newAuthenticator(trusted.options), test.chain...)
			for range 2 {
				got, ok, err := respond(c, test.chain...)
				if diff := cmp.Diff(want, got); diff != "" || ok != wantOK || (err == nil) != (wantErr == nil) {
					t.Errorf("got %v, %v, want %v, %v: -want +got:\n%s", ok, err, wantOK, wantErr, diff)
				}
				if remembered := len(trusted.verified.Keys()); (remembered == 1) != test.remembered {
					t.Errorf("%d chains are remembered, want one: %v", remembered, test.remembered)
				}
			}
		})
	}
}

// TestVerifiedChainIsForgotten checks that what was verified once does not outlive its reason.
func TestVerifiedChainIsForgotten(t *testing.T) {
	t.Parallel()
	root := (*issuer)(nil).issue(t, "root", true, time.Hour, x509.ExtKeyUsageAny)
	other := (*issuer)(nil).issue(t, "root", true, time.Hour, x509.ExtKeyUsageAny)
	middle := root.issue(t, "middle", true, time.Hour, x509.ExtKeyUsageAny)
	alice := middle.issue(t, "alice", false, time.Hour, client)
	ca := root.bundle()
	c := &certificates{ca: ca}
	check := func(when, want string, chain ...*issuer) {
		t.Helper()
		if got, err := login(c, chain...); got != want {
			t.Errorf("%s: the user is %q (%v), want %q", when, got, err, want)
		}
	}
	check("at first", "alice", alice, middle)
	check("on a connection without the intermediate", "", alice)
	check("with another intermediate", "", alice, other.issue(t, "middle", true, time.Hour, x509.ExtKeyUsageAny))
	check("again", "alice", alice, middle)
	ca.content = other.bundle().content
	check("after the CA was replaced", "", alice, middle)
	ca.content = slices.Concat(ca.content, root.bundle().content)
	check("after the CA was added again", "alice", alice, middle)
	ca.content = nil
	check("without CAs", "", alice, middle)
	ca.content = []byte("damaged")
	if _, err := login(c, alice, middle); err == nil {
		t.Error("a damaged bundle is no error")
	}
}

func TestVerifiedChainExpires(t *testing.T) {
	t.Parallel()
	const soon = 5 * time.Second
	for name, lifetimes := range map[string]struct{ intermediate, certificate time.Duration }{
		"the certificate":  {time.Hour, soon},
		"its intermediate": {soon, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := (*issuer)(nil).issue(t, "root", true, time.Hour, x509.ExtKeyUsageAny)
			middle := root.issue(t, "middle", true, lifetimes.intermediate, x509.ExtKeyUsageAny)
			alice := middle.issue(t, "alice", false, lifetimes.certificate, client)
			c := &certificates{ca: root.bundle()}
			if got, err := login(c, alice, middle); got != "alice" {
				t.Fatalf("the user is %q (%v), want alice", got, err)
			}
			poll.UntilNoError(t, "the chain is rejected", func() error {
				if got, _ := login(c, alice, middle); got != "" {
					return errors.New("it is still accepted")
				}
				return nil
			})
		})
	}
}

// BenchmarkCertificates authenticates the requests of a connection.
func BenchmarkCertificates(b *testing.B) {
	users, err := pki.NewAuthority("users", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	expect.NoError(b, err)
	pair, err := users.Issue(pki.ClientTemplate("alice"), time.Now(), time.Hour)
	expect.NoError(b, err)
	c := &certificates{ca: &bundle{content: users.CertPEM()}}
	trusted, err := c.current()
	expect.NoError(b, err)
	req := &http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{pair.Cert}}}
	for name, logins := range map[string]authenticator.Request{"upstream": newAuthenticator(trusted.options), "annex": c} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, ok, err := logins.AuthenticateRequest(req); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
}
