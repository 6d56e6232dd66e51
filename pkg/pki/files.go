// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"

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

func parseCertificate(raw []byte) (*x509.Certificate, []byte, error) {
	block := findBlock(raw, certBlock)
	if block == nil {
		return nil, nil, errors.New("contains no certificate: it is damaged, restore it")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate is damaged, restore it: %w", err)
	}
	return cert, pem.EncodeToMemory(block), nil
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

func parseKey(raw []byte) (crypto.Signer, []byte, error) {
	block := findBlock(raw, keyBlock)
	if block == nil {
		return nil, nil, errors.New("contains no private key: it is damaged, restore it")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("private key is damaged, restore it: %w", err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, nil, fmt.Errorf("private key of type %T cannot sign", parsed)
	}
	return key, pem.EncodeToMemory(block), nil
}

func findBlock(raw []byte, kind string) *pem.Block {
	for len(raw) > 0 {
		var block *pem.Block
		if block, raw = pem.Decode(raw); block == nil {
			return nil
		}
		if block.Type == kind {
			return block
		}
	}
	return nil
}

func loadKey(path string) (crypto.Signer, error) {
	raw, err := readPEM(path, keyMode)
	if err != nil {
		return nil, err
	}
	key, _, err := parseKey(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
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

func matches(cert *x509.Certificate, key crypto.Signer) bool {
	public, ok := cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(key.Public())
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
