// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"sync"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/pki"
)

// proxyCA are the authorities of front proxies, as long as none of them signs users'
// certificates: whoever has one that is good for both could log in as anybody. Files may
// change, so this is looked at whenever what is in them did.
type proxyCA struct {
	dynamiccertificates.CAContentProvider
	users dynamiccertificates.CAContentProvider

	mu      sync.Mutex
	checked [2][]byte
	err     error
}

// VerifyOptions knows no proxy while users could be proxies.
func (c *proxyCA) VerifyOptions() (x509.VerifyOptions, bool) {
	if c.check() != nil {
		return x509.VerifyOptions{}, false
	}
	return c.CAContentProvider.VerifyOptions()
}

func (c *proxyCA) check() error {
	proxies, users := c.CurrentCABundleContent(), c.users.CurrentCABundleContent()
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes.Equal(c.checked[0], proxies) && bytes.Equal(c.checked[1], users) {
		return c.err
	}
	c.checked, c.err = [2][]byte{proxies, users}, checkApart(proxies, users)
	if c.err != nil {
		klog.Background().Error(c.err, "Front proxies cannot log in")
	}
	return c.err
}

// checkApart refuses bundles of which certificates of one could be verified with the
// other. An authority is its key: it may have several certificates.
func checkApart(proxies, users []byte) error {
	ofProxies, err := pki.ParseBundle(proxies)
	if err != nil {
		return fmt.Errorf("--requestheader-client-ca-file: %w", err)
	}
	ofUsers, err := pki.ParseBundle(users)
	if err != nil {
		return fmt.Errorf("--client-ca-file: %w", err)
	}
	for _, proxy := range ofProxies {
		for _, user := range ofUsers {
			if bytes.Equal(proxy.RawSubjectPublicKeyInfo, user.RawSubjectPublicKeyInfo) || isSignedBy(user, proxy) {
				return fmt.Errorf("--requestheader-client-ca-file has the authority %q, which signs certificates of users too: "+
					"say with --requestheader-allowed-names which of them is the proxy", proxy.Subject.CommonName)
			}
		}
	}
	return nil
}

// isSignedBy reports whether certificates of the one authority can be shown as those of
// the other, with the one as an intermediate.
func isSignedBy(intermediate, authority *x509.Certificate) bool {
	return authority.CheckSignature(intermediate.SignatureAlgorithm, intermediate.RawTBSCertificate, intermediate.Signature) == nil
}
