// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
)

const (
	markerKind = "AnnexDataDir"
	// formatVersion is increased when an older annex could damage the directory.
	formatVersion = 1
)

type marker struct {
	Kind          string `json:"kind"`
	FormatVersion int    `json:"formatVersion"`
	// Etcd is nil before an etcd was used, and after a restore.
	Etcd *Etcd `json:"etcd,omitempty"`
}

// Etcd is the etcd that has the objects of an annex.
type Etcd struct {
	// ID identifies annex's objects in it, and in a copy of it.
	ID string `json:"id"`
	// Servers are its endpoints. The embedded one has none.
	Servers []string `json:"servers,omitempty"`
}

// Etcd returns the etcd that the data directory was last used with, nil if that is unknown.
func (d *Dir) Etcd() (*Etcd, error) {
	m, err := readMarker(filepath.Join(d.path, markerName))
	return m.Etcd, err
}

// RecordEtcd records the etcd that the data directory is used with; nil removes the record.
func (d *Dir) RecordEtcd(etcd *Etcd) error {
	if was, err := d.Etcd(); err != nil || reflect.DeepEqual(was, etcd) {
		return err
	}
	return writeMarker(filepath.Join(d.path, markerName), etcd)
}

// inspect reports whether a directory is marked, in a format that this annex knows, or else empty. It
// returns an error for one that annex must not change.
func inspect(path string) (marked bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, fmt.Errorf("read the directory: %w", err)
	}
	if !info.IsDir() {
		return false, errors.New("is not a directory")
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return false, fmt.Errorf("list the directory: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() == markerName {
			_, err := readMarker(filepath.Join(path, markerName))
			return true, err
		}
	}
	for _, entry := range entries {
		if !harmless(entry.Name()) {
			return false, fmt.Errorf("has no %s but is not empty (it contains %q): not annex's, no change was made", markerName, entry.Name())
		}
	}
	return false, nil
}

// harmless reports whether an unmarked directory may contain a file: one of a start that
// was killed, or of mkfs.
func harmless(name string) bool {
	return name == lockName || name == markerName+tempSuffix || name == "lost+found"
}

func readMarker(path string) (m marker, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return m, fmt.Errorf("read the marker: %w", err)
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, fmt.Errorf("marker %s is damaged: %w", path, err)
	}
	if m.Kind != markerKind || m.FormatVersion < 1 {
		return m, fmt.Errorf("marker %s is not one of annex's (kind %q, format version %d)", path, m.Kind, m.FormatVersion)
	}
	if m.FormatVersion > formatVersion {
		return m, fmt.Errorf("was written by a newer annex (format version %d, this one knows %d)", m.FormatVersion, formatVersion)
	}
	return m, nil
}

const tempSuffix = ".tmp"

func writeMarker(path string, etcd *Etcd) error {
	raw, err := json.Marshal(marker{Kind: markerKind, FormatVersion: formatVersion, Etcd: etcd})
	if err != nil {
		return fmt.Errorf("encode the marker: %w", err)
	}
	if err := ReplaceFile(path, append(raw, '\n'), fileMode); err != nil {
		return fmt.Errorf("write the marker: %w", err)
	}
	return nil
}

// ReplaceFile writes a file atomically and durably: after a power failure it has the previous
// content or this.
func ReplaceFile(path string, raw []byte, mode fs.FileMode) error {
	err := writeSynced(path+tempSuffix, raw, mode)
	if err == nil {
		err = os.Rename(path+tempSuffix, path)
	}
	if err != nil {
		return errors.Join(err, removeIfExists(path+tempSuffix))
	}
	return SyncDir(filepath.Dir(path))
}

func writeSynced(path string, raw []byte, mode fs.FileMode) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(raw); err != nil {
		return err
	}
	return errors.Join(f.Chmod(mode), f.Sync())
}

// SyncDir makes changes to the entries of a directory durable.
func SyncDir(path string) (err error) {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync the directory: %w", err)
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	// Some file systems cannot sync a directory and return EINVAL.
	if err := dir.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("sync the directory: %w", err)
	}
	return nil
}
