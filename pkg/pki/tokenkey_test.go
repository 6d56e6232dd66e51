// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEnsureTokenKey(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	path, err := EnsureTokenKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	made := snapshot(t, dir)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode of the key: %v, error %v; want 0600", info, err)
	}
	if again, err := EnsureTokenKey(dir); err != nil || again != path {
		t.Fatalf("a second time: %s, error %v", again, err)
	}
	if diff := cmp.Diff(made, snapshot(t, dir)); diff != "" {
		t.Errorf("a second time changed (-want +got):\n%s", diff)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := EnsureTokenKey(dir); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of a key that others could read: %v, error %v; want 0600", info, err)
	}
}

func TestEnsureTokenKeyKeepsADamagedOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, tokenKeyName)
	mustWrite(t, path, "rubbish")
	_, err := EnsureTokenKey(dir)
	wantError(t, err, path, "damaged", "service account")
	if got := mustRead(t, path); got != "rubbish" {
		t.Errorf("the damaged key was replaced by %q", got)
	}
}
