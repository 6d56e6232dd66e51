// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdcluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// Authority signs the certificates of a cluster and of its clients.
type Authority struct {
	// CA is its certificate, in PEM.
	CA []byte

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// KeyPair is a certificate with its key, in PEM.
type KeyPair struct{ Cert, Key []byte }

// NewAuthority creates an authority.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "etcd-ca"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	var der []byte
	der, a.key = a.sign(t, template, time.Now().Add(24*time.Hour))
	var err error
	a.cert, err = x509.ParseCertificate(der)
	expect.NoError(t, err)
	a.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

// Serving signs a certificate for a member.
func (a *Authority) Serving(t testing.TB) KeyPair {
	t.Helper()
	return a.pair(t, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "etcd-member"},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, time.Now().Add(24*time.Hour))
}

// Client signs a certificate for a client that expires at notAfter, which may be in the past.
func (a *Authority) Client(t testing.TB, notAfter time.Time) KeyPair {
	t.Helper()
	return a.pair(t, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "etcd-client"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, notAfter)
}

// SecretData is the data of a Secret for a Store, with a client certificate that expires at
// notAfter.
func (a *Authority) SecretData(t testing.TB, notAfter time.Time) map[string][]byte {
	t.Helper()
	pair := a.Client(t, notAfter)
	return map[string][]byte{"ca.crt": a.CA, "tls.crt": pair.Cert, "tls.key": pair.Key}
}

func (a *Authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func (a *Authority) pair(t testing.TB, template *x509.Certificate, notAfter time.Time) KeyPair {
	t.Helper()
	der, key := a.sign(t, template, notAfter)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	expect.NoError(t, err)
	return KeyPair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}
}

// sign signs with the key of the authority, or self-signs before there is one.
func (a *Authority) sign(t testing.TB, template *x509.Certificate, notAfter time.Time) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, err)
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	expect.NoError(t, err)
	template.NotBefore, template.NotAfter = time.Now().Add(-24*time.Hour), notAfter
	template.KeyUsage |= x509.KeyUsageDigitalSignature
	issuer, signer := a.cert, a.key
	if issuer == nil {
		issuer, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), signer)
	expect.NoError(t, err)
	return der, key
}
