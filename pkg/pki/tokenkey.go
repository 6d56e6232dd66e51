// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"fmt"
	"path/filepath"
)

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
