// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// ServingTemplate returns a template for a listener at the address: `localhost`, the name
// and the loopback addresses of the machine, and the given names and addresses.
func ServingTemplate(bindAddress net.IP, extra ...string) *x509.Certificate {
	names := sets.New("localhost")
	addresses := sets.New("127.0.0.1", "::1")
	if hostname, err := os.Hostname(); err == nil && hostname != "" {
		names.Insert(hostname)
	}
	if len(bindAddress) > 0 && !bindAddress.IsUnspecified() {
		addresses.Insert(bindAddress.String())
	}
	for _, name := range extra {
		if ip := net.ParseIP(name); ip != nil {
			addresses.Insert(ip.String())
		} else if name != "" {
			names.Insert(name)
		}
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "annex"},
		DNSNames:    sets.List(names),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, address := range sets.List(addresses) {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	return template
}

// ClientTemplate returns a template for a user of annex.
func ClientTemplate(user string, groups ...string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// ensureLeaf loads, creates or renews one certificate.
func (a *Authority) ensureLeaf(path string, template *x509.Certificate, opts Options) (*Pair, error) {
	have, err := exists(path)
	if err != nil {
		return nil, err
	}
	if have {
		found, err := a.loadLeaf(path, template)
		if err != nil || IsFresh(found.Cert, opts.Clock.Now()) && sameNames(found.Cert, template) {
			return found, err
		}
	}
	made, err := a.Issue(template, opts.Clock.Now(), opts.LeafLifetime)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", path, err)
	}
	return made, writeFile(path, slices.Concat(made.CertPEM, made.KeyPEM), keyMode)
}

// loadLeaf accepts only a certificate of this authority for this purpose, of any age.
func (a *Authority) loadLeaf(path string, template *x509.Certificate) (*Pair, error) {
	raw, err := readPEM(path, keyMode)
	if err != nil {
		return nil, err
	}
	const remedy = "restore it, or remove it to get a new one"
	cert, key, err := parsePair(raw, raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", path, err, remedy)
	}
	if err := cert.CheckSignatureFrom(a.cert); err != nil {
		return nil, fmt.Errorf("%s is not signed by %s: one of them was replaced: %s: %w", path, filepath.Join(filepath.Dir(path), caCertName), remedy, err)
	}
	if cert.Subject.String() != template.Subject.String() || !slices.Equal(cert.ExtKeyUsage, template.ExtKeyUsage) {
		return nil, fmt.Errorf("%s is a certificate for something else (%s): %s", path, cert.Subject, remedy)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, fmt.Errorf("%s: encode its key: %w", path, err)
	}
	return &Pair{Cert: cert, CertPEM: encodeCertificate(cert), KeyPEM: keyPEM}, nil
}

// IsFresh is false if less than a third of a certificate's life remains, or if it is from
// the future, because the clock was wrong.
func IsFresh(cert *x509.Certificate, now time.Time) bool {
	return now.Before(renewalTime(cert)) && !now.Before(cert.NotBefore)
}

func sameNames(cert, template *x509.Certificate) bool {
	return sets.New(cert.DNSNames...).Equal(sets.New(template.DNSNames...)) &&
		addresses(cert).Equal(addresses(template))
}

func addresses(cert *x509.Certificate) sets.Set[string] {
	found := sets.New[string]()
	for _, ip := range cert.IPAddresses {
		found.Insert(ip.String())
	}
	return found
}
