// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"time"
)

// Authority is a CA with its key, in memory.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// Pair is a certificate with its key.
type Pair struct {
	// Cert is the certificate.
	Cert *x509.Certificate
	// CertPEM and KeyPEM are the pair in PEM.
	CertPEM, KeyPEM []byte
}

// NewAuthority creates a self-signed CA that is valid from notBefore until notAfter.
func NewAuthority(commonName string, notBefore, notAfter time.Time) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	return selfSign(commonName, key, notBefore, notAfter)
}

// ParseAuthority reads a self-signed CA and its key, and checks that they match. It does
// not check their age.
func ParseAuthority(certPEM, keyPEM []byte) (*Authority, error) {
	cert, key, err := parsePair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	if !isAuthority(cert) {
		return nil, errors.New("it is not the certificate of a self-signed CA")
	}
	return &Authority{cert: cert, key: key}, nil
}

// Certificate is the CA's own certificate.
func (a *Authority) Certificate() *x509.Certificate { return a.cert }

// CertPEM is the CA's own certificate in PEM.
func (a *Authority) CertPEM() []byte { return encodeCertificate(a.cert) }

// KeyPEM is the CA's key in PEM.
func (a *Authority) KeyPEM() ([]byte, error) { return encodeKey(a.key) }

// Issue signs a certificate with the subject, names and usage of the template, and a new
// key. It does not outlive the CA.
func (a *Authority) Issue(template *x509.Certificate, now time.Time, lifetime time.Duration) (*Pair, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template.NotBefore = now.Add(-backdate)
	template.NotAfter = earlier(now.Add(lifetime), a.cert.NotAfter)
	template.BasicConstraintsValid = true
	cert, err := sign(template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return &Pair{Cert: cert, CertPEM: encodeCertificate(cert), KeyPEM: keyPEM}, nil
}

func selfSign(commonName string, key crypto.Signer, notBefore, notAfter time.Time) (*Authority, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             notBefore,
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	cert, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the CA certificate: %w", err)
	}
	return &Authority{cert: cert, key: key}, nil
}

func isAuthority(cert *x509.Certificate) bool {
	return cert.IsCA && cert.CheckSignatureFrom(cert) == nil
}

func newKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create a key: %w", err)
	}
	return key, nil
}
