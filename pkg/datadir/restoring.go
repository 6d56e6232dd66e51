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

// RestoringDir is the directory of the embedded etcd during a restore. It becomes EtcdDir
// once it is complete.
func (d *Dir) RestoringDir() string { return filepath.Join(d.path, restoringName) }

// PlaceRestored durably renames RestoringDir to EtcdDir, which has at most a socket.
func (d *Dir) PlaceRestored() error {
	if err := os.RemoveAll(d.EtcdDir()); err != nil {
		return err
	}
	if err := os.Rename(d.RestoringDir(), d.EtcdDir()); err != nil {
		return err
	}
	return SyncDir(d.path)
}

// CheckRestored returns an error if a restore is unfinished: annex must not start with
// an etcd that was to be replaced.
func (d *Dir) CheckRestored() error {
	_, err := os.Lstat(d.RestoringDir())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("--data-dir %s: look for an unfinished restore: %w", d.path, err)
	}
	return fmt.Errorf("--data-dir %s: a restore is unfinished: run the same `annex restore` again, or remove %s", d.path, d.RestoringDir())
}
