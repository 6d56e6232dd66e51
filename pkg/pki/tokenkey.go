// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"fmt"
	"path/filepath"
)

const tokenKeyName = "service-account.key"

// EnsureTokenKey makes in dir the key that signs the tokens of service accounts,
// unless it is there, and returns its path. It is never renewed: all tokens would end
// with it.
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
