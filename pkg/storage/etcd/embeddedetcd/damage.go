// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// dbLockTimeout bounds the wait for a database that another process uses. etcd itself would wait
// forever.
const dbLockTimeout = time.Second

func dbPath(dir string) string { return filepath.Join(dir, "member", "snap", "db") }

// checkDatabase reads the database before etcd does. etcd reads it in goroutines of its own,
// where bbolt's panics about a damaged file would end the process with a stack trace.
func checkDatabase(dir string) error {
	path := dbPath(dir)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// A first start that was killed left an empty file, which etcd fills.
	if err == nil && info.Size() == 0 {
		return nil
	}
	err = readDatabase(path)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("database %s is in use by another process", path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("open the database: %w", err)
	default:
		return fmt.Errorf("database %s is damaged, restore it from a backup: %w", path, err)
	}
}

func readDatabase(path string) (err error) {
	// A truncated file faults when its missing pages are read.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("read it: %v", r)
		}
	}()
	return viewDatabase(path, func(tx *bolt.Tx) error { return walk(tx, path) })
}

func viewDatabase(path string, view func(*bolt.Tx) error) (err error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: dbLockTimeout})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.View(view)
}

// walk reads every used page. etcd does the same at each start, and then finds them in memory.
func walk(tx *bolt.Tx, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() < tx.Size() {
		return fmt.Errorf("it has %d bytes of %d", info.Size(), tx.Size())
	}
	return tx.ForEach(func(_ []byte, bucket *bolt.Bucket) error {
		cursor := bucket.Cursor()
		for key, _ := cursor.First(); key != nil; key, _ = cursor.Next() {
		}
		return nil
	})
}
