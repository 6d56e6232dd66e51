// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// authority is a CA.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, err)
	a := &authority{key: key, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, key.Public(), key)
	expect.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	expect.NoError(t, err)
	return a
}

// sign returns a certificate, in PEM, for what a request is for.
func (a *authority) sign(t *testing.T, serial int64, request *x509.CertificateRequest, public any) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: request.Subject, DNSNames: request.DNSNames, IPAddresses: request.IPAddresses,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, public, a.key)
	expect.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// newPair returns a certificate for a name, by default injector.test, and its key.
func (a *authority) newPair(t *testing.T, serial int64, name ...string) (cert, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	expect.NoError(t, err)
	return a.sign(t, serial, request(append(name, "injector.test")), key.Public()), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func TestCertificateFromFiles(t *testing.T) {
	t.Parallel()
	ca, dir := newAuthority(t), t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write := func(cert, key []byte) {
		t.Helper()
		expect.NoError(t, os.WriteFile(certFile, cert, 0o600))
		expect.NoError(t, os.WriteFile(keyFile, key, 0o600))
	}
	cert, key := ca.newPair(t, 2)
	newCert, newKey := ca.newPair(t, 3)
	write(cert, newKey)
	_, err := fromFiles(t.Context(), certFile, keyFile)
	expect.Error(t, err, "--tls-cert-file, --tls-private-key-file")

	write(cert, key)
	read, err := fromFiles(t.Context(), certFile, keyFile)
	expect.NoError(t, err)
	served := func(serial int64) {
		t.Helper()
		poll.UntilDone(t, "the certificate is served", func() (bool, string) {
			pair, err := read(nil)
			expect.NoError(t, err, "also while the files do not fit each other")
			return pair.Leaf.SerialNumber.Int64() == serial, pair.Leaf.SerialNumber.String()
		})
	}
	served(2)
	write(newCert, newKey)
	served(3)
}

// The certificate is requested, and served once it is approved and signed; a restart uses it again.
func TestRequestedCertificate(t *testing.T) {
	t.Parallel()
	ca, kube := newAuthority(t), fake.NewClientset()
	o := &options{signer: "example.com/injector", certDir: filepath.Join(t.TempDir(), "certificates"), hosts: []string{"injector.test", "127.0.0.1"}}
	read, err := o.requested(t.Context(), kube)
	expect.NoError(t, err)
	_, err = read(nil)
	expect.Error(t, err, "not signed yet")
	signRequest(t, kube, ca)
	poll.UntilNoError(t, "the certificate is served", func() error { _, err := read(nil); return err })

	again, err := o.requested(t.Context(), kube)
	expect.NoError(t, err)
	pair, err := again(nil)
	expect.NoError(t, err)
	expect.Equal(t, []string{"injector.test"}, pair.Leaf.DNSNames, "names of the certificate")

	info, err := os.Stat(o.certDir)
	expect.NoError(t, err)
	expect.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "mode of the folder")
	serveWith(t, again, ca)
}

// signRequest waits for a request, and approves and signs it.
func signRequest(t *testing.T, kube kubernetes.Interface, ca *authority) {
	t.Helper()
	requests := kube.CertificatesV1().CertificateSigningRequests()
	var found certificatesv1.CertificateSigningRequest
	poll.UntilDone(t, "a certificate is requested", func() (bool, string) {
		list, err := requests.List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			return false, "none"
		}
		found = list.Items[0]
		return true, ""
	})
	expect.Equal(t, "example.com/injector", found.Spec.SignerName, "signer")
	expect.Equal(t, []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}, found.Spec.Usages, "usages")
	block, _ := pem.Decode(found.Spec.Request)
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	expect.NoError(t, err)
	found.Status.Certificate = ca.sign(t, 7, parsed, parsed.PublicKey)
	found.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue}}
	_, err = requests.UpdateStatus(t.Context(), &found, metav1.UpdateOptions{})
	expect.NoError(t, err)
}

// serveWith serves with a certificate, connects, and ends.
func serveWith(t *testing.T, read certificateFunc, ca *authority) {
	t.Helper()
	var listening net.ListenConfig
	listener, err := listening.Listen(t.Context(), "tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, listener, read, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	}()
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "injector.test", MinVersion: tls.VersionTLS12}}}
	response, err := client.Get("https://" + listener.Addr().String())
	expect.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	expect.NoError(t, err)
	expect.NoError(t, response.Body.Close())
	expect.Equal(t, "hello", string(body), "response")
	client.CloseIdleConnections()
	stop()
	expect.NoError(t, <-ended, "end of the server")
}
