// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/annex-dev/annex/pkg/test/expect"
)

const widgets = "widgets.example.com"

func newArchive(t *testing.T) (*Archive, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "sub", "archive")
	a, err := New(dir)
	expect.NoError(t, err)
	return a, dir
}

func records(resource string, names ...string) (all []Record) {
	for _, name := range names {
		all = append(all, Record{
			Archived: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Resource: resource, Rule: "old",
			Object: json.RawMessage(fmt.Sprintf(`{"metadata":{"name":%q}}`, name)),
		})
	}
	return all
}

// read returns the records of a resource.
func read(t *testing.T, dir, resource string) (all []Record, err error) {
	t.Helper()
	err = Read(dir, resource, func(r Record) error {
		all = append(all, r)
		return nil
	})
	return all, err
}

func filesIn(t *testing.T, dir string) (files []string) {
	t.Helper()
	expect.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %s", path, info.Mode())
		}
		if !entry.IsDir() {
			files = append(files, path)
		}
		return nil
	}))
	return files
}

func TestWriteAndRead(t *testing.T) {
	t.Parallel()
	a, dir := newArchive(t)
	expect.NoError(t, a.Write(widgets, records(widgets, "a", "b")))
	expect.NoError(t, a.Write("gadgets.example.com", records("gadgets.example.com", "x")))
	expect.NoError(t, a.Write(widgets, records(widgets, "c")))
	// Another process does not append to a file of this one.
	other, err := New(dir)
	expect.NoError(t, err)
	expect.NoError(t, other.Write(widgets, records(widgets, "d")))
	if files := filesIn(t, dir); len(files) != 3 {
		t.Errorf("the files are %v", files)
	}
	all, err := read(t, dir, "")
	expect.NoError(t, err)
	if len(all) != 5 {
		t.Errorf("read %d records of all resources, want 5", len(all))
	}
	one, err := read(t, dir, "gadgets.example.com")
	expect.NoError(t, err)
	expect.Equal(t, records("gadgets.example.com", "x"), one)
	stop := errors.New("stop")
	if err := Read(dir, widgets, func(Record) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the error is %v", err)
	}
	if _, err := read(t, dir, "others.example.com"); err == nil {
		t.Error("a resource that was never archived was read")
	}
}

// TestDamage truncates the last write of a file, as a crash does, and changes a byte of another.
func TestDamage(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(data []byte, frame int) []byte{
		"truncated": func(data []byte, frame int) []byte { return data[:frame+(len(data)-frame)/2] },
		"changed": func(data []byte, frame int) []byte {
			data[frame+(len(data)-frame)/2] ^= 0xff
			return data
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, dir := newArchive(t)
			expect.NoError(t, a.Write(widgets, records(widgets, "a", "b")))
			file := filesIn(t, dir)[0]
			before, err := os.ReadFile(file)
			expect.NoError(t, err)
			expect.NoError(t, a.Write(widgets, records(widgets, "c")))
			data, err := os.ReadFile(file)
			expect.NoError(t, err)
			expect.NoError(t, os.WriteFile(file, damage(data, len(before)), fileMode))
			next, err := New(dir)
			expect.NoError(t, err)
			expect.NoError(t, next.Write("zones.example.com", records("zones.example.com", "z")))

			all, err := read(t, dir, "")
			var damaged *DamagedError
			if !errors.As(err, &damaged) || len(damaged.Files) != 1 {
				t.Errorf("the error is %v", err)
			}
			expect.Equal(t, append(records(widgets, "a", "b"), records("zones.example.com", "z")...), all)
		})
	}
}

// TestWriteAfterAnError begins another file, because the end of the previous is unknown.
func TestWriteAfterAnError(t *testing.T) {
	t.Parallel()
	a, dir := newArchive(t)
	expect.NoError(t, a.Write(widgets, records(widgets, "a")))
	file := filesIn(t, dir)[0]
	expect.NoError(t, os.Rename(file, file+".away"))
	if err := a.Write(widgets, records(widgets, "b")); err == nil {
		t.Error("wrote to a file that is gone")
	}
	expect.NoError(t, a.Write(widgets, records(widgets, "b")))
	expect.NoError(t, os.Rename(file+".away", file))
	if all, err := read(t, dir, widgets); err != nil || len(all) != 2 {
		t.Errorf("read %v, %v", all, err)
	}
}

// TestLinksAreNotFollowed has a folder of a resource that leads out of the archive.
func TestLinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	a, dir := newArchive(t)
	outside := t.TempDir()
	expect.NoError(t, os.Symlink(outside, filepath.Join(dir, widgets)))
	if err := a.Write(widgets, records(widgets, "a")); err == nil {
		t.Error("wrote outside of the archive")
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("outside are %v, %v", entries, err)
	}
}

func TestNewRefusesAFolderOfOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	expect.NoError(t, os.Chmod(dir, 0o755))
	_, err := New(dir)
	expect.Error(t, err, "open the archive", "0755")
	file := filepath.Join(dir, "file")
	expect.NoError(t, os.WriteFile(file, nil, fileMode))
	_, err = New(file)
	expect.Error(t, err, "create the archive")
}
