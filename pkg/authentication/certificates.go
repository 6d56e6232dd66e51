// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

const (
	// The signatures of a chain are verified again after verifiedFor, or when one of its
	// certificates expires.
	verifiedFor = time.Minute
	// maxVerified is the number of chains that are remembered.
	maxVerified = 4096
)

// certificates authenticates client certificates, as upstream does, and remembers the chains that
// were verified. Upstream verifies their signatures at each request of a connection, which takes a
// tenth of the CPU time of a GET.
type certificates struct {
	ca    dynamiccertificates.CAContentProvider
	trust atomic.Pointer[trust]
}

// trust is a bundle of CAs with the chains that it has verified.
type trust struct {
	bundle  []byte
	options x509.VerifyOptions
	// verified has an authenticator for each chain, by its digest.
	verified *cache.LRUExpireCache
}

var errNoCA = errors.New("the CAs of client certificates cannot be read")

// AuthenticateRequest implements authenticator.Request.
func (c *certificates) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	t, err := c.current()
	if t == nil || err != nil {
		return nil, false, err
	}
	key := digestOf(req.TLS.PeerCertificates)
	if known, ok := t.verified.Get(key); ok {
		return known.(authenticator.Request).AuthenticateRequest(req)
	}
	response, ok, err := newAuthenticator(t.options).AuthenticateRequest(req)
	if ok && err == nil {
		t.remember(key, req.TLS.PeerCertificates)
	}
	return response, ok, err
}

// current returns the bundle as it is now, or nil if there is none.
func (c *certificates) current() (*trust, error) {
	bundle := c.ca.CurrentCABundleContent()
	if len(bundle) == 0 {
		return nil, nil
	}
	if t := c.trust.Load(); t != nil && bytes.Equal(t.bundle, bundle) {
		return t, nil
	}
	t := &trust{bundle: bundle, options: x509request.DefaultVerifyOptions(), verified: cache.NewLRUExpireCache(maxVerified)}
	t.options.Roots = x509.NewCertPool()
	if !t.options.Roots.AppendCertsFromPEM(bundle) {
		return nil, errNoCA
	}
	c.trust.Store(t)
	return t, nil
}

// remember adds a chain that was verified. Its authenticator has the client's certificate as only
// root, and checks everything but signatures.
func (t *trust) remember(key [sha256.Size]byte, chain []*x509.Certificate) {
	options := t.options
	options.Intermediates = x509.NewCertPool()
	for _, intermediate := range chain[1:] {
		options.Intermediates.AddCert(intermediate)
	}
	verified, err := chain[0].Verify(options)
	if err != nil {
		return // it has just expired
	}
	limit := verifiedFor
	for _, certificates := range verified {
		for _, certificate := range certificates {
			limit = min(limit, time.Until(certificate.NotAfter))
		}
	}
	options.Roots, options.Intermediates = x509.NewCertPool(), x509.NewCertPool()
	options.Roots.AddCert(chain[0])
	t.verified.Add(key, newAuthenticator(options), limit)
}

// newAuthenticator returns upstream's authenticator.
func newAuthenticator(options x509.VerifyOptions) authenticator.Request {
	return x509request.New(options, x509request.CommonNameUserConversion)
}

// digestOf returns the digest of a chain as a client sent it.
func digestOf(chain []*x509.Certificate) (digest [sha256.Size]byte) {
	var content []byte
	for _, certificate := range chain {
		content = binary.BigEndian.AppendUint64(content, uint64(len(certificate.Raw)))
		content = append(content, certificate.Raw...)
	}
	return sha256.Sum256(content)
}
