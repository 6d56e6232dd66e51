// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/annex-dev/annex/pkg/storage/etcd/externaletcd"
)

// target is the address of an etcd.
type target struct {
	endpoints []string
	prefix    string
}

func (t target) equal(other target) bool {
	return t.prefix == other.prefix && slices.Equal(t.endpoints, other.endpoints)
}

// secretRef names a Secret.
type secretRef struct{ namespace, name string }

// String implements fmt.Stringer.
func (r secretRef) String() string { return r.namespace + "/" + r.name }

// credentials are read from a Secret.
type credentials struct {
	// version identifies the version of the Secret.
	version string
	config  *tls.Config
	// expires is the expiry of the client certificate; zero without one.
	expires time.Time
}

// secretCA is the key of the certificate authority.
const secretCA = "ca.crt"

// parseSecret parses the certificates in a Secret. Each is optional: without an authority the
// system's are trusted.
func parseSecret(secret *corev1.Secret) (*credentials, error) {
	c := &credentials{
		version: string(secret.UID) + "/" + secret.ResourceVersion,
		config:  &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if ca := secret.Data[secretCA]; len(ca) > 0 {
		c.config.RootCAs = x509.NewCertPool()
		if !c.config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("%s contains no PEM certificate", secretCA)
		}
	}
	cert, key := secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]
	switch {
	case len(cert) == 0 && len(key) == 0:
		if c.config.RootCAs == nil {
			return nil, fmt.Errorf("it has none of %s, %s and %s", secretCA, corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
		}
		return c, nil
	case len(cert) == 0 || len(key) == 0:
		return nil, fmt.Errorf("it has only one of %s and %s", corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", corev1.TLSCertKey, corev1.TLSPrivateKeyKey, err)
	}
	c.config.Certificates = []tls.Certificate{pair}
	c.expires = pair.Leaf.NotAfter
	return c, nil
}

// dial opens a connection, which does not wait for the etcd.
func (p *Pool) dial(t target, creds *credentials) (*connection, error) {
	var config *tls.Config
	if creds != nil {
		config = creds.config
	}
	client, err := externaletcd.Dial(t.endpoints, config, p.config.Tracer)
	if err != nil {
		return nil, err
	}
	return newConnection(t, creds, client, false), nil
}

// readCredentials returns the current credentials of a Secret.
func (p *Pool) readCredentials(ctx context.Context, ref *secretRef) (*credentials, error) {
	secret, err := p.config.ReadSecret(ctx, ref.namespace, ref.name)
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", ref, err)
	}
	c, err := parseSecret(secret)
	if err != nil {
		return nil, fmt.Errorf("use Secret %s: %w", ref, err)
	}
	return c, nil
}
