// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"
)

const certFlag, keyFlag = "--tls-cert-file", "--tls-private-key-file"

// CheckServingPair checks a serving certificate that the user provides. Errors name the
// flag and the file.
func CheckServingPair(certFile, keyFile string, now time.Time) error {
	rawCert, err := os.ReadFile(certFile)
	if err != nil {
		return fmt.Errorf("%s %s: %w", certFlag, certFile, errors.Unwrap(err))
	}
	rawKey, err := os.ReadFile(keyFile)
	if err != nil {
		return fmt.Errorf("%s %s: %w", keyFlag, keyFile, errors.Unwrap(err))
	}
	return CheckServingContent(certFile, keyFile, rawCert, rawKey, now)
}

// CheckServingContent is CheckServingPair for the content of the files.
func CheckServingContent(certFile, keyFile string, rawCert, rawKey []byte, now time.Time) error {
	block := findBlock(rawCert, certBlock)
	if block == nil {
		return fmt.Errorf("%s %s: contains no PEM certificate", certFlag, certFile)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fmt.Errorf("%s %s: %w", certFlag, certFile, err)
	}
	if _, err := tls.X509KeyPair(rawCert, rawKey); err != nil {
		return fmt.Errorf("%s %s: key cannot be used with %s %s: %w", keyFlag, keyFile, certFlag, certFile, err)
	}
	switch {
	case now.After(cert.NotAfter):
		return fmt.Errorf("%s %s: expired on %s", certFlag, certFile, date(cert.NotAfter))
	case now.Before(cert.NotBefore):
		return fmt.Errorf("%s %s: not valid before %s", certFlag, certFile, date(cert.NotBefore))
	}
	return nil
}
