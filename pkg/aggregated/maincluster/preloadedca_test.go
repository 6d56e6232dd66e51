// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/cert"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestAuthoritiesAreKnownFromTheStart uses a bundle whose informer never runs.
func TestAuthoritiesAreKnownFromTheStart(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, err)
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "test"}, key)
	expect.NoError(t, err)
	bundle, err := cert.EncodeCertificates(ca)
	expect.NoError(t, err)
	for name, test := range map[string]struct {
		content   string
		known, ok bool
	}{
		"a bundle": {content: string(bundle), known: true, ok: true},
		"nothing":  {ok: true},
		"damaged":  {content: "no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			follower, err := (&Cluster{Kube: fake.NewClientset()}).authority("test", clientCAKey)
			expect.NoError(t, err)
			authorities := &preloadedCA{dynamicCA: follower}
			err = authorities.load(&corev1.ConfigMap{Data: map[string]string{clientCAKey: test.content}}, clientCAKey)
			if (err == nil) != test.ok {
				t.Fatalf("reading: %v", err)
			}
			options, known := authorities.VerifyOptions()
			if known != test.known || (len(authorities.CurrentCABundleContent()) > 0) != test.known {
				t.Fatalf("known is %t, the bundle has %d bytes", known, len(authorities.CurrentCABundleContent()))
			}
			if !known {
				return
			}
			if _, err := ca.Verify(options); err != nil {
				t.Errorf("the authority is not trusted: %v", err)
			}
		})
	}
}
