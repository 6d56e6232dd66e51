// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const socketDirPrefix = "annex-"

// socket is the client socket of the embedded etcd.
type socket struct {
	path    string
	tempDir string // set if the socket cannot be in the data directory
}

// EtcdSocket returns the path for the client socket of the embedded etcd. It is in
// EtcdDir, or, if the socket cannot have a path there, in a new temporary directory with
// mode 0700, which Close removes.
func (d *Dir) EtcdSocket() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.socket.path != "" {
		return d.socket.path, nil
	}
	if path := filepath.Join(d.EtcdDir(), socketName); checkSocketPath(path) == nil {
		d.socket.path = path
		return path, nil
	}
	tempDir, err := shortTempDir()
	if err != nil {
		return "", fmt.Errorf("--data-dir %s: create a directory for the etcd socket: %w", d.path, err)
	}
	// Recorded, so that the start after a kill -9 can remove it.
	if err := writeSynced(filepath.Join(d.path, socketDirName), []byte(tempDir+"\n"), fileMode); err != nil {
		return "", errors.Join(fmt.Errorf("--data-dir %s: record the directory of the etcd socket: %w", d.path, err), os.Remove(tempDir))
	}
	d.socket = socket{path: filepath.Join(tempDir, socketName), tempDir: tempDir}
	return d.socket.path, nil
}

// RunningEtcdSocket returns the etcd socket of an annex that uses the data directory. The
// error is fs.ErrNotExist if there is none. A killed annex leaves a socket without a
// listener.
func (d *Dir) RunningEtcdSocket() (string, error) {
	path := filepath.Join(d.EtcdDir(), socketName)
	if note, err := os.ReadFile(filepath.Join(d.path, socketDirName)); err == nil {
		path = filepath.Join(strings.TrimSpace(string(note)), socketName)
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("--data-dir %s: find the etcd socket: %w", d.path, err)
	}
	return path, nil
}

// checkSocketPath returns why the socket cannot have a path. The kernel limits the length, and clients of
// etcd, etcdctl included, get the path in a URL without escapes.
func checkSocketPath(path string) error {
	if len(path) > maxSocketPath {
		return fmt.Errorf("%s: path too long for a socket", path)
	}
	if strings.ContainsAny(path, "#?%") {
		return fmt.Errorf("%s: a path with #, ? or %% cannot be in a URL", path)
	}
	return nil
}

// shortTempDir prefers the user's temporary directory, whose path may be too long as well
// (macOS, test runners).
func shortTempDir() (string, error) {
	var errs []error
	for _, parent := range []string{os.TempDir(), "/tmp"} {
		dir, err := os.MkdirTemp(parent, socketDirPrefix) // 0700
		if err != nil {
			errs = append(errs, err)
			continue
		}
		err = checkSocketPath(filepath.Join(dir, socketName))
		if err == nil {
			return dir, nil
		}
		errs = append(errs, err, os.Remove(dir))
	}
	return "", errors.Join(errs...)
}

func (s *socket) remove(dataDir string) error {
	if s.tempDir == "" {
		return nil
	}
	return errors.Join(removeSocketDir(s.tempDir), removeIfExists(filepath.Join(dataDir, socketDirName)))
}

// removeStaleSocketDir removes the temporary directory of a killed annex, and only what
// this package creates.
func (d *Dir) removeStaleSocketDir() error {
	note := filepath.Join(d.path, socketDirName)
	raw, err := os.ReadFile(note)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the folder of the last etcd socket: %w", err)
	}
	dir := strings.TrimSpace(string(raw))
	if info, err := os.Lstat(dir); err == nil && info.IsDir() && isOwn(info) && strings.HasPrefix(filepath.Base(dir), socketDirPrefix) {
		if err := removeSocketDir(dir); err != nil {
			return fmt.Errorf("remove the folder of the last etcd socket: %w", err)
		}
	}
	return removeIfExists(note)
}

func removeSocketDir(dir string) error {
	return errors.Join(removeIfExists(filepath.Join(dir, socketName)), removeIfExists(dir))
}

func removeIfExists(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
