// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/util/certificate"
	"k8s.io/klog/v2"
)

// certificateFunc returns the current serving certificate.
type certificateFunc func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// certificate returns the certificate of the flags.
func (o *options) certificate(ctx context.Context, config *restclient.Config) (certificateFunc, error) {
	if o.signer == "" {
		return fromFiles(o.certFile, o.keyFile)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: create the client of certificates: %w", err)
	}
	return o.requested(ctx, kube)
}

// fromFiles reads a certificate. Handshakes read it again; while the files do not fit each other,
// because one is replaced after the other, the last certificate is used.
func fromFiles(certFile, keyFile string) (certificateFunc, error) {
	var mu sync.Mutex
	var cert, key []byte
	var pair *tls.Certificate
	read := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		newCert, err := os.ReadFile(certFile)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert-file: %w", err)
		}
		newKey, err := os.ReadFile(keyFile)
		if err != nil {
			return nil, fmt.Errorf("--tls-private-key-file: %w", err)
		}
		mu.Lock()
		defer mu.Unlock()
		if pair != nil && bytes.Equal(cert, newCert) && bytes.Equal(key, newKey) {
			return pair, nil
		}
		loaded, err := tls.X509KeyPair(newCert, newKey)
		if err != nil {
			if pair != nil {
				klog.Background().Error(err, "The certificate and the key do not fit each other, using the previous ones", "certificate", certFile, "key", keyFile)
				return pair, nil
			}
			return nil, fmt.Errorf("--tls-cert-file, --tls-private-key-file: %w", err)
		}
		cert, key, pair = newCert, newKey, &loaded
		return pair, nil
	}
	_, err := read(nil)
	return read, err
}

// pairName is the prefix of the files in --cert-dir.
const pairName = "annex-injector"

// requested requests a certificate with a CertificateSigningRequest until ctx is done, and renews it
// before it expires. Until it is signed, handshakes fail.
func (o *options) requested(ctx context.Context, kube kubernetes.Interface) (certificateFunc, error) {
	if err := os.MkdirAll(o.certDir, 0o700); err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	store, err := certificate.NewFileStore(pairName, o.certDir, o.certDir, "", "")
	if err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	manager, err := certificate.NewManager(&certificate.Config{
		ClientsetFn:      func(*tls.Certificate) (kubernetes.Interface, error) { return kube, nil },
		SignerName:       o.signer,
		Template:         request(o.hosts),
		Usages:           []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		CertificateStore: store,
		Name:             "annex-injector",
		Ctx:              &ctx,
	})
	if err != nil {
		return nil, fmt.Errorf("--signer-name, --cert-dir: %w", err)
	}
	manager.Start()
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		current := manager.Current()
		if current == nil {
			return nil, errors.New("the CertificateSigningRequest is not signed yet")
		}
		return current, nil
	}, nil
}

// request is a request of a certificate for hosts.
func request(hosts []string) *x509.CertificateRequest {
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: hosts[0]}}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return template
}
