// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package datadir manages the directory of everything annex keeps on disk: the embedded
// etcd, certificates and the administrator's kubeconfig.
//
// A marker file identifies it. A directory with other content is rejected before anything
// in it is created or changed. One process at a time uses it, guarded by an flock, which
// the kernel releases when the process ends.
package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/klog/v2"
)

const (
	lockName       = "lock"
	markerName     = "annex-data.json"
	socketDirName  = "socket-dir"
	etcdName       = "etcd"
	pkiName        = "pki"
	kubeconfigName = "admin.kubeconfig"
	socketName     = "client.sock"

	dirMode  fs.FileMode = 0o700
	fileMode fs.FileMode = 0o600
)

// Dir is a data directory, locked until Close.
type Dir struct {
	path string
	lock *os.File

	mu     sync.Mutex
	socket socket
}

// Open creates the data directory, or opens an existing one, and locks it. Errors are one
// line and name the flag and the path; a rejected directory is left unchanged.
func Open(path string) (*Dir, error) {
	d, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("--data-dir %s: %w", path, err)
	}
	return d, nil
}

func open(path string) (*Dir, error) {
	if err := checkPlatform(); err != nil {
		return nil, err
	}
	if path == "" {
		return nil, errors.New("must not be empty")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find the absolute path: %w", err)
	}
	if err := os.MkdirAll(abs, dirMode); err != nil {
		return nil, fmt.Errorf("create the directory: %w", err)
	}
	// Before locking, so that a foreign directory gets no lock file.
	if _, err := inspect(abs); err != nil {
		return nil, err
	}
	if err := tighten(abs); err != nil {
		return nil, err
	}
	lock, err := acquire(filepath.Join(abs, lockName))
	if err != nil {
		return nil, err
	}
	d := &Dir{path: abs, lock: lock}
	if err := d.claim(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Find returns a data directory that annex has used, for reading, without locking it:
// annex may run.
func Find(path string) (*Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("--data-dir %s: find the absolute path: %w", path, err)
	}
	marked, err := inspect(abs)
	if err != nil {
		return nil, fmt.Errorf("--data-dir %s: %w", path, err)
	}
	if !marked {
		return nil, fmt.Errorf("--data-dir %s: annex was never started here", path)
	}
	return &Dir{path: abs}, nil
}

// claim inspects the locked directory again, and marks it if it is empty.
func (d *Dir) claim() error {
	marked, err := inspect(d.path)
	if err != nil {
		return err
	}
	if !marked {
		if err := writeMarker(filepath.Join(d.path, markerName), nil); err != nil {
			return err
		}
	}
	return d.removeStaleSocketDir()
}

// Path is the absolute path of the data directory.
func (d *Dir) Path() string { return d.path }

// EtcdDir is the directory of the embedded etcd, which the caller creates.
func (d *Dir) EtcdDir() string { return filepath.Join(d.path, etcdName) }

// PKIDir is the directory of annex's own certificates, which the caller creates.
func (d *Dir) PKIDir() string { return filepath.Join(d.path, pkiName) }

// AdminKubeconfig is the path of the kubeconfig of the built-in administrator.
func (d *Dir) AdminKubeconfig() string { return filepath.Join(d.path, kubeconfigName) }

// Close removes a temporary socket directory and unlocks. The embedded etcd must have
// stopped.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lock == nil {
		return nil
	}
	err := d.socket.remove(d.path)
	// Closing the descriptor releases the flock. The file stays: if it were removed, two
	// processes could lock two different files of the same name.
	err = errors.Join(err, d.lock.Close())
	d.lock = nil
	return err
}

// tighten removes group and other permissions. It rejects a directory with content that
// other users may have replaced, because they had write permission.
func tighten(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("read permissions: %w", err)
	}
	perm := info.Mode().Perm()
	if perm&0o077 == 0 {
		return nil
	}
	if perm&0o022 != 0 {
		entries, err := os.ReadDir(path)
		if err != nil {
			return fmt.Errorf("list the directory: %w", err)
		}
		if len(entries) > 0 {
			return fmt.Errorf("other users may write to it (mode %04o): check its content, then run chmod 700", perm)
		}
	}
	if err := os.Chmod(path, dirMode); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("other users may enter it (mode %04o) and it belongs to another user: name a sub-directory instead: %w", perm, err)
		}
		return fmt.Errorf("remove permissions of other users: %w", err)
	}
	klog.Background().Info("Removed permissions of other users from the data directory", "dataDir", path, "mode", fmt.Sprintf("%04o", perm))
	return nil
}

const restoringName = "etcd.restoring"

// RestoringDir is the directory of the embedded etcd during a restore. It becomes EtcdDir
// once it is complete.
func (d *Dir) RestoringDir() string { return filepath.Join(d.path, restoringName) }

// PlaceRestored durably renames RestoringDir to EtcdDir, which has at most a socket, and removes the
// record of the previous etcd.
func (d *Dir) PlaceRestored() error {
	if err := d.RecordEtcd(nil); err != nil {
		return err
	}
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
