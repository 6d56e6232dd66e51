// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate"
)

type certificateFunc func(*tls.ClientHelloInfo) (*tls.Certificate, error)

func (o *options) certificate(ctx context.Context, kube kubernetes.Interface) (certificateFunc, error) {
	if o.signer != "" {
		return o.requested(ctx, kube)
	}
	return fromFiles(ctx, o.certFile, o.keyFile)
}

// fromFiles reads a certificate, and reads it again when it changes until ctx is done. While the files do not fit each
// other, because one is replaced after the other, the last certificate is used.
func fromFiles(ctx context.Context, certFile, keyFile string) (certificateFunc, error) {
	files, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving", certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file, --tls-private-key-file: %w", err)
	}
	go files.Run(ctx, 1)
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.X509KeyPair(files.CurrentCertKeyContent())
		return &pair, err
	}, nil
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
