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

// proxyCA provides the CAs of front proxies as long as none of them signs users' certificates.
// Otherwise users could impersonate any other user. It is checked again when a file changes.
type proxyCA struct {
	dynamiccertificates.CAContentProvider
	users dynamiccertificates.CAContentProvider

	mu      sync.Mutex
	checked [2][]byte
	err     error
}

// VerifyOptions implements CAContentProvider. It returns false while the check fails.
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
	c.checked, c.err = [2][]byte{proxies, users}, checkDisjoint(proxies, users)
	if c.err != nil {
		klog.Background().Error(c.err, "Front proxies cannot authenticate")
	}
	return c.err
}

// checkDisjoint returns an error if certificates of one bundle's CAs can be verified with the
// other. It compares keys, because a CA may have several certificates.
func checkDisjoint(proxies, users []byte) error {
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
				return fmt.Errorf("--requestheader-client-ca-file has the CA %q, which also signs certificates of users: "+
					"set --requestheader-allowed-names to the names of the proxy", proxy.Subject.CommonName)
			}
		}
	}
	return nil
}

func isSignedBy(intermediate, authority *x509.Certificate) bool {
	return authority.CheckSignature(intermediate.SignatureAlgorithm, intermediate.RawTBSCertificate, intermediate.Signature) == nil
}
