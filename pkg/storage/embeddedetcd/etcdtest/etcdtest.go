// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcdtest gives unit tests an etcd of their own, in the process.
package etcdtest

import (
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/annex-dev/annex/pkg/storage/embeddedetcd"
)

// Start runs an etcd until the test has ended. It does not sync to disk, unless
// change, which may be nil, says so.
func Start(t testing.TB, change func(*embeddedetcd.Config)) *embeddedetcd.Server {
	t.Helper()
	dir := ShortDir(t)
	config := embeddedetcd.Config{
		Dir: filepath.Join(dir, "etcd"), SocketPath: filepath.Join(dir, "etcd", "client.sock"), UnsafeNoFsync: true,
	}
	if change != nil {
		change(&config)
	}
	server, err := embeddedetcd.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// StartClient runs an etcd until the test has ended, and returns its client in the
// form that upstream's storage takes.
func StartClient(t testing.TB) *kubernetes.Client {
	t.Helper()
	client := &kubernetes.Client{Client: Start(t, nil).Client()}
	client.Kubernetes = client
	return client
}

// ShortDir returns a folder that is removed after the test. t.TempDir has the name of
// the test in it, and is too long for a unix socket.
func ShortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "annex-etcd-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
