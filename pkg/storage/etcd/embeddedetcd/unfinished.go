// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import (
	"fmt"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
)

func memberDir(dir string) string { return filepath.Join(dir, "member") }
func walDir(dir string) string    { return filepath.Join(memberDir(dir), "wal") }

// removeUnfinished removes the data of a first start that was killed after it created the
// write-ahead log and before it added its member to it. etcd would take it for the log of a
// cluster without members, and wait for a leader for ever.
//
// No data is lost: a write is acknowledged only when it is committed, and the membership is
// always committed first. The database, which is filled from the log, must also be empty.
func (s *Server) removeUnfinished() error {
	unfinished, err := isUnfinished(s.cfg.Dir, s.zap)
	if err != nil || !unfinished {
		return err
	}
	s.log.V(1).Info("Starting over, the first start did not come to its end", "directory", s.cfg.Dir)
	if err := os.RemoveAll(memberDir(s.cfg.Dir)); err != nil {
		return fmt.Errorf("remove what an unfinished first start left: %w", err)
	}
	return nil
}

func isUnfinished(dir string, log *zap.Logger) (bool, error) {
	// Without one, etcd makes a new one; with more, the start is long past.
	if segments, err := filepath.Glob(filepath.Join(walDir(dir), "*.wal")); err != nil || len(segments) != 1 {
		return false, err
	}
	empty, err := isEmptyDatabase(dbPath(dir))
	if err != nil || !empty {
		return false, err
	}
	opened, err := wal.OpenForRead(log, walDir(dir), &walpb.Snapshot{})
	if err != nil {
		return false, nil // etcd itself reports the error
	}
	defer opened.Close()
	_, state, _, err := opened.ReadAll()
	if err != nil {
		return false, nil
	}
	return state.GetCommit() == 0, nil
}

// isEmptyDatabase reports whether the database has neither members nor keys.
func isEmptyDatabase(path string) (empty bool, err error) {
	// A finished or an unfinished start has made it; a lost one is neither.
	if info, _ := os.Stat(path); info == nil || info.Size() == 0 {
		return false, nil
	}
	empty = true
	err = viewDatabase(path, func(tx *bolt.Tx) error {
		for _, name := range [][]byte{schema.Members.Name(), schema.Key.Name()} {
			if bucket := tx.Bucket(name); bucket != nil {
				if key, _ := bucket.Cursor().First(); key != nil {
					empty = false
				}
			}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("read the database %s: %w", path, err)
	}
	return empty, nil
}
