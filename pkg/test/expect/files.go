// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Snapshot returns mode and content of every path below a directory.
func Snapshot(t testing.TB, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		var body []byte
		if info.Mode().IsRegular() {
			if body, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		found[path] = info.Mode().String() + " " + string(body)
		return nil
	})
	NoError(t, err)
	return found
}

// Unchanged fails the test if a path below a directory changed since Snapshot returned
// before.
func Unchanged(t testing.TB, dir string, before map[string]string) {
	t.Helper()
	if diff := cmp.Diff(before, Snapshot(t, dir)); diff != "" {
		t.Errorf("files in %s (-before +after):\n%s", dir, diff)
	}
}
