// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const restoringName = "etcd.restoring"

// RestoringDir is where the embedded etcd is while it is restored from a backup. It
// becomes EtcdDir when it is whole.
func (d *Dir) RestoringDir() string { return filepath.Join(d.path, restoringName) }

// PlaceRestored gives a restored etcd its place, so that it is there after a power cut
// too. In that place there is a socket at most.
func (d *Dir) PlaceRestored() error {
	if err := os.RemoveAll(d.EtcdDir()); err != nil {
		return err
	}
	if err := os.Rename(d.RestoringDir(), d.EtcdDir()); err != nil {
		return err
	}
	return SyncDir(d.path)
}

// CheckRestored returns an error if a restore did not come to its end: the etcd that
// annex would start with is not the one that somebody wants back.
func (d *Dir) CheckRestored() error {
	_, err := os.Lstat(d.RestoringDir())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("--data-dir %s: look for an unfinished restore: %w", d.path, err)
	}
	return fmt.Errorf("--data-dir %s: a restore did not come to its end: run the same `annex restore` again, or remove %s", d.path, d.RestoringDir())
}
