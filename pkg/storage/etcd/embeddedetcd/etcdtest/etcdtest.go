// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcdtest runs etcd in the process of a test.
package etcdtest

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd"
)

// Start runs an embedded etcd until the end of the test. It does not sync to disk, unless
// change, which may be nil, sets that.
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

// StartClient runs an embedded etcd until the end of the test, and returns its client in
// upstream's form.
func StartClient(t testing.TB, changes ...func(*embeddedetcd.Config)) *kubernetes.Client {
	t.Helper()
	etcd := Start(t, func(config *embeddedetcd.Config) {
		for _, change := range changes {
			change(config)
		}
	})
	client := &kubernetes.Client{Client: etcd.Client()}
	client.Kubernetes = client
	return client
}

// Dial returns a client of an etcd, which is closed at the end of the test.
func Dial(t testing.TB, endpoint string) *kubernetes.Client {
	t.Helper()
	client, err := kubernetes.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

const (
	startTimeout  = time.Minute
	retryInterval = 20 * time.Millisecond
)

// TCP is an etcd on a loopback port, as in clusters outside of the process.
type TCP struct {
	*embed.Etcd
	Config *embed.Config
	URL    string
}

// StartTCP runs an etcd on a free loopback port until the end of the test. change may be nil.
func StartTCP(t testing.TB, change func(*embed.Config)) *TCP {
	t.Helper()
	config := embed.NewConfig()
	config.Dir = t.TempDir()
	config.UnsafeNoFsync = true
	config.ListenPeerUrls = nil
	config.ListenClientUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	config.EnableGRPCGateway = false
	config.TickMs, config.ElectionMs = 20, 100
	// Two etcds with the same names and token would have the same cluster ID.
	config.InitialClusterToken = t.Name() + "/" + config.Dir
	if change != nil {
		change(config)
	}
	config.AdvertiseClientUrls = config.ListenClientUrls
	s := &TCP{Config: config}
	s.Start(t)
	t.Cleanup(func() { s.Close() })
	return s
}

// Start starts an etcd that was closed, on the port and with the data of its Config.
func (s *TCP) Start(t testing.TB) {
	t.Helper()
	var err error
	// A connection of another process may use the port for a moment.
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(retryInterval) {
		if s.Etcd, err = embed.StartEtcd(s.Config); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("start etcd: %v", err)
		}
	}
	<-s.Server.ReadyNotify()
	listener := &s.Config.ListenClientUrls[0]
	listener.Host = s.Clients[0].Addr().String()
	s.URL = listener.String()
}

// ShortDir returns a directory that is removed after the test. t.TempDir contains the name of
// the test, and is too long for a unix socket.
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
