// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestOpenCreatesAndReopens(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "b")
	for range 2 {
		d := mustOpen(t, path)
		for name, mode := range map[string]fs.FileMode{"": 0o700, lockName: 0o600, markerName: 0o600} {
			info, err := os.Stat(filepath.Join(path, name))
			expect.NoError(t, err)
			if info.Mode().Perm() != mode {
				t.Errorf("%q has mode %04o, want %04o", name, info.Mode().Perm(), mode)
			}
		}
		mustClose(t, d)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		files map[string]string
		mode  fs.FileMode
		want  string
	}{
		"foreign":       {files: map[string]string{"notes.txt": "mine"}, want: `it contains "notes.txt"`},
		"foreign etcd":  {files: map[string]string{"member": ""}, want: "not annex's, no change was made"},
		"newer":         {files: map[string]string{markerName: `{"kind":"AnnexDataDir","formatVersion":2}`}, want: "newer annex (format version 2, this one knows 1)"},
		"damaged":       {files: map[string]string{markerName: "{"}, want: "is damaged"},
		"empty marker":  {files: map[string]string{markerName: ""}, want: "is damaged"},
		"other marker":  {files: map[string]string{markerName: `{"kind":"Other","formatVersion":1}`}, want: "not one of annex's"},
		"others write":  {files: map[string]string{markerName: `{"kind":"AnnexDataDir","formatVersion":1}`}, mode: 0o770, want: "other users may write to it (mode 0770)"},
		"foreign, open": {files: map[string]string{"notes.txt": "mine"}, mode: 0o755, want: "not annex's"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, body := range tt.files {
				writeFile(t, filepath.Join(dir, file), body)
			}
			if tt.mode != 0 {
				expect.NoError(t, os.Chmod(dir, tt.mode))
			}
			before := expect.Snapshot(t, dir)
			_, err := Open(dir)
			expect.ErrorLine(t, err, "--data-dir "+dir+": ", tt.want)
			expect.Unchanged(t, dir, before)
		})
	}
}

func TestOpenNamesWhatCannotBeUsed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "")
	for _, path := range []string{"", file, filepath.Join(file, "below")} {
		_, err := Open(path)
		expect.ErrorLine(t, err, "--data-dir "+path+": ")
	}
}

func TestOpenWithoutPermission(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may do everything")
	}
	dir := t.TempDir()
	expect.NoError(t, os.Chmod(dir, 0o500))
	_, err := Open(filepath.Join(dir, "data"))
	expect.ErrorLine(t, err, "permission denied")
}

func TestOpenSecondTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := mustOpen(t, dir)
	_, err := Open(dir)
	expect.ErrorLine(t, err, fmt.Sprintf("--data-dir %s: in use by another annex (pid %d)", dir, os.Getpid()))
	mustClose(t, d)
	mustClose(t, mustOpen(t, dir))
}

func TestOpenWaitsForAnEndingAnnex(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := mustOpen(t, dir)
	time.AfterFunc(lockTimeout/10, func() { mustClose(t, d) })
	mustClose(t, mustOpen(t, dir))
}

func TestOpenAfterAKilledFirstStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, lockName), "12345\n")
	writeFile(t, filepath.Join(dir, markerName+tempSuffix), "{")
	mustClose(t, mustOpen(t, dir))
}

func TestOpenRemovesReadPermissionOfOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mustClose(t, mustOpen(t, dir))
	expect.NoError(t, os.Chmod(dir, 0o755))
	mustClose(t, mustOpen(t, dir))
	info, err := os.Stat(dir)
	expect.NoError(t, err)
	if got := info.Mode().Perm(); got != 0o700 {
		t.Errorf("mode is %04o, want 0700", got)
	}
}

func TestLockIsNotASymlink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target := filepath.Join(t.TempDir(), "precious")
	writeFile(t, target, "precious")
	expect.NoError(t, os.Symlink(target, filepath.Join(dir, lockName)))
	if _, err := Open(dir); err == nil {
		t.Error("want an error for a lock that is a symlink")
	}
	if raw, err := os.ReadFile(target); err != nil || string(raw) != "precious" {
		t.Errorf("the symlink's target became %q, %v", raw, err)
	}
}

func TestEtcdSocketOfShortPath(t *testing.T) {
	t.Parallel()
	d := mustOpen(t, shortDir(t))
	defer mustClose(t, d)
	got, err := d.EtcdSocket()
	expect.NoError(t, err)
	if want := filepath.Join(d.EtcdDir(), socketName); got != want {
		t.Errorf("socket is %s, want %s", got, want)
	}
}

func TestEtcdSocketOutsideDataDir(t *testing.T) {
	t.Parallel()
	for name, base := range map[string]string{"too long": strings.Repeat("long", 30), "not in a URL": "100% #1?"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := shortDir(t)
			dir := filepath.Join(parent, base)

			d := mustOpen(t, dir)
			path := mustListen(t, d)
			if strings.HasPrefix(path, parent) {
				t.Errorf("the socket is %s, in the data directory", path)
			}
			info, err := os.Stat(filepath.Dir(path))
			expect.NoError(t, err)
			if got := info.Mode().Perm(); got != 0o700 {
				t.Errorf("the socket's folder has mode %04o, want 0700", got)
			}
			mustClose(t, d)
			wantGone(t, filepath.Dir(path))

			killed := mustOpen(t, dir)
			leftover := filepath.Dir(mustListen(t, killed))
			if err := killed.lock.Close(); err != nil { // as the kernel does at kill -9
				t.Fatal(err)
			}
			mustClose(t, mustOpen(t, dir))
			wantGone(t, leftover)
		})
	}
}

func TestStaleSocketDirRemovesNothingElse(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(other, socketName), "not ours")
	mustClose(t, mustOpen(t, dir))
	writeFile(t, filepath.Join(dir, socketDirName), other+"\n")
	mustClose(t, mustOpen(t, dir))
	if _, err := os.Stat(filepath.Join(other, socketName)); err != nil {
		t.Error(err)
	}
}

// shortDir returns a folder whose path is short enough for a socket. The path of t.TempDir may be too long.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "d-")
	expect.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func mustOpen(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Open(path)
	expect.NoError(t, err)
	return d
}

func mustClose(t *testing.T, d *Dir) {
	t.Helper()
	expect.NoError(t, d.Close())
}

// mustListen checks that the kernel accepts the path.
func mustListen(t *testing.T, d *Dir) string {
	t.Helper()
	path, err := d.EtcdSocket()
	expect.NoError(t, err)
	again, err := d.EtcdSocket()
	if err != nil || again != path {
		t.Fatalf("second call gave %q, %v, want %q", again, err, path)
	}
	l, err := net.Listen("unix", path)
	expect.NoError(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	return path
}

func wantGone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("%s should be gone, got %v", path, err)
	}
}

func writeFile(t *testing.T, path, body string) {
	t.Helper()
	expect.NoError(t, os.WriteFile(path, []byte(body), 0o600))
}

// TestEtcd: the record survives a start, and ends with a restore.
func TestEtcd(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	want := func(want *Etcd) *Dir {
		t.Helper()
		d := mustOpen(t, dir)
		t.Cleanup(func() { d.Close() })
		got, err := d.Etcd()
		expect.NoError(t, err)
		expect.Equal(t, want, got, "recorded etcd")
		return d
	}
	for _, etcd := range []*Etcd{nil, {ID: "a", Servers: []string{"http://127.0.0.1:2379"}}, {ID: "b"}} {
		d := want(nil)
		expect.NoError(t, d.RecordEtcd(etcd))
		mustClose(t, d)
		d = want(etcd)
		expect.NoError(t, os.Mkdir(d.RestoringDir(), 0o700))
		expect.NoError(t, d.PlaceRestored())
		mustClose(t, d)
	}
	mustClose(t, want(nil))
}

// Find returns the directory of a running annex, and does not create one.
func TestFind(t *testing.T) {
	t.Parallel()
	running := mustOpen(t, filepath.Join(t.TempDir(), "data"))
	defer mustClose(t, running)
	found, err := Find(running.Path())
	expect.NoError(t, err)
	if found.PKIDir() != running.PKIDir() || found.AdminKubeconfig() != running.AdminKubeconfig() {
		t.Errorf("found %s, want %s", found.Path(), running.Path())
	}
	mustClose(t, found)
	if second, err := Open(running.Path()); err == nil {
		mustClose(t, second)
		t.Error("closing what was found let another annex in")
	}

	missing := filepath.Join(t.TempDir(), "missing")
	foreign := t.TempDir()
	writeFile(t, filepath.Join(foreign, "notes.txt"), "mine")
	for path, want := range map[string]string{t.TempDir(): "never started", foreign: "not annex's", missing: "no such file"} {
		if _, err := Find(path); err == nil || !strings.Contains(err.Error(), "--data-dir "+path) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that contains %q", path, err, want)
		}
	}
	if _, err := os.Stat(missing); err == nil {
		t.Errorf("%s was made", missing)
	}
}
