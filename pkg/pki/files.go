// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"

	"k8s.io/client-go/util/keyutil"

	"github.com/annex-dev/annex/pkg/datadir"
)

const (
	certBlock = "CERTIFICATE"
	keyBlock  = "PRIVATE KEY"
)

// sign makes a certificate with a random serial number.
func sign(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1))
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// readPEM reads one of annex's files and removes excess permissions.
func readPEM(path string, mode fs.FileMode) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the file: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read permissions of the file: %w", err)
	}
	return raw, restrict(path, info.Mode().Perm(), mode)
}

// parsePair parses a certificate and its key.
func parsePair(certPEM, keyPEM []byte) (*x509.Certificate, crypto.Signer, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, nil, err
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, nil, fmt.Errorf("private key of type %T cannot sign", pair.PrivateKey)
	}
	return pair.Leaf, key, nil
}

// ParseBundle returns the certificates of a PEM bundle, at least one.
func ParseBundle(raw []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for rest := raw; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != certBlock {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d is damaged: %w", len(all)+1, err)
		}
		all = append(all, certificate)
	}
	if len(all) == 0 {
		return nil, errors.New("contains no PEM certificate")
	}
	return all, nil
}

// EncodeBundle is the PEM of certificates.
func EncodeBundle(certificates []*x509.Certificate) []byte {
	var raw []byte
	for _, certificate := range certificates {
		raw = append(raw, encodeCertificate(certificate)...)
	}
	return raw
}

func loadKey(path string) (crypto.Signer, error) {
	raw, err := readPEM(path, keyMode)
	if err != nil {
		return nil, err
	}
	key, err := keyutil.ParsePrivateKeyPEM(raw)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged, restore it: %w", path, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s: private key of type %T cannot sign", path, key)
	}
	return signer, nil
}

func makeKey(path string) error {
	key, err := newKey()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	raw, err := encodeKey(key)
	if err != nil {
		return fmt.Errorf("encode the key of %s: %w", path, err)
	}
	return writeFile(path, raw, keyMode)
}

func encodeCertificate(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certBlock, Bytes: cert.Raw})
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), nil
}

// writeFile writes a file atomically.
func writeFile(path string, raw []byte, mode fs.FileMode) error {
	if err := datadir.ReplaceFile(path, raw, mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
