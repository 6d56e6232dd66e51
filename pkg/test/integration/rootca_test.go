// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/testserver"
)

const rootCAName = "kube-root-ca.crt"

// waitForRootCA waits until the ConfigMap of a namespace has the CA, and returns it as a pool.
func (a *annex) waitForRootCA(t *testing.T, namespace, what string, want []byte) *x509.CertPool {
	t.Helper()
	expect.Eventually(t, a.Kube.CoreV1().ConfigMaps(namespace), rootCAName, rootCAName+" in "+namespace+" "+what, func(found *corev1.ConfigMap) bool {
		return len(found.Data) == 1 && found.Data["ca.crt"] == string(want)
	})
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(want) {
		t.Fatal("the bundle has no certificate")
	}
	return pool
}

// expectTrusted sends a request that verifies the server with the pool.
func (a *annex) expectTrusted(t *testing.T, pool *x509.CertPool) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}}
	send(t, client, http.MethodGet, a.URL+"/readyz", "").Expect(t, http.StatusOK, "readyz")
}

func TestRootCAConfigMap(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	namespace := a.newNamespace(t)
	want := a.AnnexConfig.CAData
	pool := a.waitForRootCA(t, namespace, "is made", want)
	a.waitForRootCA(t, metav1.NamespaceDefault, "is made", want)
	a.waitForRootCA(t, metav1.NamespaceSystem, "is made", want)
	a.expectTrusted(t, pool)

	configMaps := a.Kube.CoreV1().ConfigMaps(namespace)
	for _, forged := range []string{`{"data": {"ca.crt": "forged"}}`, `{"data": {"ca.crt": null}}`, `{"data": {"more": "x"}}`, `{"data": {"ca.crt": "forged"}, "immutable": true}`} {
		expect.Patch(t, configMaps, rootCAName, forged)
		a.waitForRootCA(t, namespace, "is restored after "+forged, want)
	}
	expect.Delete(t, configMaps, rootCAName)
	a.waitForRootCA(t, namespace, "is made again", want)
}

// A provided certificate is verified with --publish-ca-file, which may change.
func TestRootCAOfProvidedCertificate(t *testing.T) {
	t.Parallel()
	first, second := newAuthority(t), newAuthority(t)
	cert, key := first.issue(t, "annex")
	bundle := first.file(t)
	flags := []string{"--tls-cert-file=" + writeFile(t, "tls.crt", cert), "--tls-private-key-file=" + writeFile(t, "tls.key", key)}
	a := newAnnex(t, testserver.Start(t, append(flags, "--publish-ca-file="+bundle)...))
	raw, err := os.ReadFile(bundle)
	expect.NoError(t, err)
	a.expectTrusted(t, a.waitForRootCA(t, metav1.NamespaceDefault, "is of the file", raw))
	both := slices.Concat(raw, certificatePEM(second.certificate))
	expect.NoError(t, os.WriteFile(bundle, both, 0o600))
	a.waitForRootCA(t, metav1.NamespaceDefault, "follows the file", both)
}
