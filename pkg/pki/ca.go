// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"fmt"
	"path/filepath"
	"time"
)

// ensureCA loads the CA, or creates one in an empty directory. A directory that lost its
// CA gets no new one, which would invalidate all kubeconfigs: there may be a backup.
func ensureCA(dir string, opts Options) (*Authority, error) {
	certPath, keyPath := filepath.Join(dir, caCertName), filepath.Join(dir, caKeyName)
	haveCert, err := exists(certPath)
	if err != nil {
		return nil, err
	}
	if haveCert {
		return loadCA(certPath, keyPath, opts.Clock.Now())
	}
	for _, name := range []string{servingName, adminName} {
		leaf := filepath.Join(dir, name)
		haveLeaf, err := exists(leaf)
		if err != nil {
			return nil, err
		}
		if haveLeaf {
			return nil, fmt.Errorf("%s is missing, yet %s exists: restore it, or move %s away to start over with a new CA", certPath, leaf, dir)
		}
	}
	return makeCA(certPath, keyPath, opts)
}

// LoadAuthority reads the CA that Ensure created in dir, which must be valid now.
func LoadAuthority(dir string, now time.Time) (*Authority, error) {
	found, err := loadCA(filepath.Join(dir, caCertName), filepath.Join(dir, caKeyName), now)
	if err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	return found, nil
}

func loadCA(certPath, keyPath string, now time.Time) (*Authority, error) {
	certPEM, err := readPEM(certPath, certMode)
	if err != nil {
		return nil, err
	}
	keyPEM, err := readPEM(keyPath, keyMode)
	if err != nil {
		return nil, err
	}
	found, err := ParseAuthority(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w: one of them was damaged or replaced, restore it", certPath, keyPath, err)
	}
	cert := found.cert
	if now.After(cert.NotAfter) {
		return nil, fmt.Errorf("%s expired on %s: move %s away to start over with a new CA, then hand out the new kubeconfig",
			certPath, date(cert.NotAfter), filepath.Dir(certPath))
	}
	if now.Before(cert.NotBefore) {
		return nil, fmt.Errorf("%s is not valid before %s: is the clock right?", certPath, date(cert.NotBefore))
	}
	return found, nil
}

// makeCA writes the key first, and uses the unused key of a start that was killed in
// between.
func makeCA(certPath, keyPath string, opts Options) (*Authority, error) {
	haveKey, err := exists(keyPath)
	if err != nil {
		return nil, err
	}
	if !haveKey {
		if err := makeKey(keyPath); err != nil {
			return nil, err
		}
	}
	key, err := loadKey(keyPath)
	if err != nil {
		return nil, err
	}
	now := opts.Clock.Now()
	made, err := selfSign(fmt.Sprintf("annex-ca@%d", now.Unix()), key, now.Add(-backdate), now.Add(opts.CALifetime))
	if err != nil {
		return nil, err
	}
	return made, writeFile(certPath, made.CertPEM(), certMode)
}

func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }

const tokenKeyName = "service-account.key"

// EnsureTokenKey creates in dir the key that signs the tokens of service accounts, unless
// it exists, and returns its path. It is never renewed, which would invalidate all tokens.
func EnsureTokenKey(dir string) (string, error) {
	path := filepath.Join(dir, tokenKeyName)
	if err := ensureTokenKey(dir, path); err != nil {
		return "", fmt.Errorf("key of the service account tokens: %w", err)
	}
	return path, nil
}

func ensureTokenKey(dir, path string) error {
	if err := prepareDir(dir); err != nil {
		return err
	}
	there, err := exists(path)
	if err != nil {
		return err
	}
	if !there {
		return makeKey(path)
	}
	_, err = loadKey(path)
	return err
}
