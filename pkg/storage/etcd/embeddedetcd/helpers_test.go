// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func testConfig(t testing.TB) Config {
	t.Helper()
	// Test names make t.TempDir too long for a socket, and it fails the test when
	// a damaged etcd still writes while it is removed.
	dir, err := os.MkdirTemp("/tmp", "annex-test-")
	expect.NoError(t, err)
	t.Cleanup(func() {
		for deadline := time.Now().Add(5 * time.Second); os.RemoveAll(dir) != nil && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
	})
	return Config{
		Dir:           filepath.Join(dir, "etcd"),
		SocketPath:    filepath.Join(dir, "s", "client.sock"),
		UnsafeNoFsync: true,
	}
}

func mustStart(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Start(t.Context(), cfg)
	expect.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func wantError(t *testing.T, s *Server, err error, parts ...string) {
	t.Helper()
	if err == nil && s != nil {
		s.Close()
	}
	expect.ErrorLine(t, err, parts...)
}

func overwrite(t *testing.T, path string, offset int64, n int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	expect.NoError(t, err)
	defer f.Close()
	_, err = f.WriteAt(bytes.Repeat([]byte{0x5a}, n), offset)
	expect.NoError(t, err)
}

func walPath(t *testing.T, dir string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	expect.NoError(t, err)
	if len(paths) == 0 {
		t.Fatal("no write-ahead log found")
	}
	return paths[0]
}
