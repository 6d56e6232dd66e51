// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	// lifetime of every certificate. A cluster runs for minutes or days.
	lifetime = 365 * 24 * time.Hour
	// backdate allows for small clock jumps.
	backdate = time.Hour

	privateMode = 0o600
)

// authority is a CA. Its key is kept in memory only.
type authority struct {
	cert *x509.Certificate
	pem  []byte
	key  crypto.Signer
}

// keyPair is a certificate with its key, both PEM.
type keyPair struct{ cert, key []byte }

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create a key for the CA %s: %w", name, err)
	}
	made, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name, NotBefore: time.Now().Add(-backdate)}, key)
	if err != nil {
		return nil, fmt.Errorf("sign the CA %s: %w", name, err)
	}
	encoded, err := cert.EncodeCertificates(made)
	if err != nil {
		return nil, fmt.Errorf("encode the CA %s: %w", name, err)
	}
	return &authority{cert: made, pem: encoded, key: key}, nil
}

// client signs a client certificate.
func (a *authority) client(user string, groups ...string) (keyPair, error) {
	return a.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// serving signs a certificate for a server on this machine.
func (a *authority) serving(names ...string) (keyPair, error) {
	return a.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: names[0]},
		DNSNames:    append(names, "localhost"),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

func (a *authority) sign(template *x509.Certificate) (keyPair, error) {
	name := template.Subject.CommonName
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("create a key for %s: %w", name, err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return keyPair{}, fmt.Errorf("create a serial number for %s: %w", name, err)
	}
	template.NotBefore, template.NotAfter = a.cert.NotBefore, a.cert.NotBefore.Add(lifetime)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	raw, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("sign the certificate of %s: %w", name, err)
	}
	signed, err := x509.ParseCertificate(raw)
	if err != nil {
		return keyPair{}, fmt.Errorf("read the certificate of %s: %w", name, err)
	}
	var pair keyPair
	if pair.cert, err = cert.EncodeCertificates(signed); err != nil {
		return keyPair{}, fmt.Errorf("encode the certificate of %s: %w", name, err)
	}
	if pair.key, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return keyPair{}, fmt.Errorf("encode the key of %s: %w", name, err)
	}
	return pair, nil
}

// write writes the pair as NAME.crt and NAME.key.
func (p keyPair) write(dir, name string) error {
	return errors.Join(replaceFile(filepath.Join(dir, name+".key"), p.key), replaceFile(filepath.Join(dir, name+".crt"), p.cert))
}

// replaceFile writes a file atomically.
func replaceFile(path string, content []byte) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, content, privateMode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// identities are the CAs of a cluster, and the tokens of the users that send most requests: a kube-apiserver verifies
// a client certificate for each request, and a token once in ten seconds.
type identities struct {
	cluster, frontProxy          *authority
	adminToken, controllersToken string
}

// The names of files in the cluster's directory.
const (
	clusterCAFile      = "ca.crt"
	servingName        = "apiserver"
	serviceAccountKey  = "service-account.key"
	tokensFile         = "tokens.csv"
	frontProxyCAFile   = "front-proxy-ca.crt"
	frontProxyName     = "front-proxy-client" // also its common name
	adminKubeconfig    = "admin.kubeconfig"
	adminIdentity      = "main-admin"
	controllerKubecfg  = "controller-manager.kubeconfig"
	controllerIdentity = "system:kube-controller-manager"
	admissionConfig    = "admission.yaml"
	webhookKubeconfig  = "webhooks.kubeconfig"
)

// makeIdentities writes everything that the API server reads before it starts.
func makeIdentities(dir string) (*identities, error) {
	clusterCA, err := newAuthority("main-cluster-ca")
	if err != nil {
		return nil, err
	}
	serving, err := clusterCA.serving("kubernetes.default.svc", "kubernetes.default", "kubernetes")
	if err != nil {
		return nil, err
	}
	signing, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return nil, fmt.Errorf("create the key of the service accounts: %w", err)
	}
	made := &identities{cluster: clusterCA, adminToken: rand.Text(), controllersToken: rand.Text()}
	tokens := fmt.Sprintf("%s,%s,,system:masters\n%s,%s,,\n", made.adminToken, adminIdentity, made.controllersToken, controllerIdentity)
	return made, errors.Join(
		replaceFile(filepath.Join(dir, tokensFile), []byte(tokens)),
		replaceFile(filepath.Join(dir, clusterCAFile), clusterCA.pem),
		serving.write(dir, servingName),
		replaceFile(filepath.Join(dir, serviceAccountKey), signing),
		made.renewFrontProxy(dir),
	)
}

// renewFrontProxy creates a new CA and client certificate for the front proxy.
func (i *identities) renewFrontProxy(dir string) error {
	ca, err := newAuthority(fmt.Sprintf("main-cluster-front-proxy-ca@%d", time.Now().UnixNano()))
	if err != nil {
		return err
	}
	login, err := ca.client(frontProxyName)
	if err != nil {
		return err
	}
	i.frontProxy = ca
	return errors.Join(replaceFile(filepath.Join(dir, frontProxyCAFile), ca.pem), login.write(dir, frontProxyName))
}
