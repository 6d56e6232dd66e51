// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package hosting

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/freeport"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/process"
)

// startInjector runs bin/annex injector until the test ends. It returns its address.
func startInjector(t *testing.T, flags ...string) (address string) {
	t.Helper()
	binary, err := process.Bin(t.Context(), "annex")
	expect.NoError(t, err)
	port, err := freeport.Find(t.Context())
	expect.NoError(t, err)
	command := exec.Command(binary, append([]string{"injector", "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port)}, flags...)...)
	injector, err := process.StartCommand(command)
	expect.NoError(t, err)
	t.Cleanup(func() {
		expect.Succeeds(t, injector.Stop(poll.Timeout), "end of the injector")
		if t.Failed() {
			t.Logf("annex injector:\n%s%s", injector.Stdout(), injector.Stderr())
		}
	})
	return freeport.Address(port)
}

// signer is the CA behind a signer of the main cluster.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhooks"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	expect.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	expect.NoError(t, err)
	return &signer{cert, key}
}

// bundle is the CA in PEM.
func (s *signer) bundle() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert.Raw})
}

// signFirst waits for a request to a signer, which must be of a user, and approves and signs it.
func (s *signer) signFirst(t *testing.T, name, user string) {
	t.Helper()
	requests := kube(t, mainCluster.Config).CertificatesV1().CertificateSigningRequests()
	var found *certificatesv1.CertificateSigningRequest
	poll.UntilDone(t, "a certificate is requested", func() (bool, string) {
		list, err := requests.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.signerName=" + name})
		if err != nil || len(list.Items) == 0 {
			return false, fmt.Sprint("none: ", err)
		}
		found = &list.Items[0]
		return true, ""
	})
	expect.Equal(t, user, found.Spec.Username, "user of the request")
	output(t, mainCluster.Kubeconfig, "kubectl certificate approve "+found.Name)
	block, _ := pem.Decode(found.Spec.Request)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	expect.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: request.Subject, DNSNames: request.DNSNames, IPAddresses: request.IPAddresses,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, s.cert, request.PublicKey, s.key)
	expect.NoError(t, err)
	file := filepath.Join(t.TempDir(), "status.yaml")
	certificate := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	expect.NoError(t, os.WriteFile(file, []byte("status: {certificate: "+certificate+"}"), 0o600))
	output(t, mainCluster.Kubeconfig, "kubectl patch csr "+found.Name+" --subresource=status --type=merge --patch-file="+file)
}
