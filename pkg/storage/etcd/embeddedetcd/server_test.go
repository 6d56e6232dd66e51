// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestDataSurvivesRestart(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	first := mustStart(t, cfg)
	put, err := first.Client().Put(t.Context(), "key", "value")
	expect.NoError(t, err)
	expect.NoError(t, first.Close())

	second := mustStart(t, cfg)
	got, err := second.Client().Get(t.Context(), "key")
	expect.NoError(t, err)
	if len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "value" || got.Kvs[0].ModRevision != put.Header.Revision {
		t.Errorf("got %v, want key=value of revision %d", got.Kvs, put.Header.Revision)
	}
	if got.Header.Revision < put.Header.Revision {
		t.Errorf("revision went back from %d to %d", put.Header.Revision, got.Header.Revision)
	}
	expect.NoError(t, second.Close())
}

func TestOnlyItsSocketIsOpen(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	s := mustStart(t, cfg)
	if len(s.etcd.Peers) != 0 {
		t.Errorf("%d peer listeners, want none", len(s.etcd.Peers))
	}
	if len(s.etcd.Clients) != 1 || s.etcd.Clients[0].Addr().Network() != "unix" {
		t.Errorf("client listeners are %v, want one unix socket", s.etcd.Clients)
	}
	for path, want := range map[string]fs.FileMode{
		cfg.Dir:                      0o700,
		filepath.Dir(cfg.SocketPath): 0o700,
		cfg.SocketPath:               0o600,
	} {
		info, err := os.Stat(path)
		expect.NoError(t, err)
		if path == cfg.SocketPath {
			continue // the folder guards it
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %04o, want %04o", path, got, want)
		}
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	expect.NoError(t, os.MkdirAll(filepath.Dir(cfg.SocketPath), 0o700))
	l, err := net.Listen("unix", cfg.SocketPath)
	expect.NoError(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	s := mustStart(t, cfg)
	if _, err := s.Client().Get(t.Context(), "key"); err != nil {
		t.Error(err)
	}
}

func TestStartRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		prepare func(t *testing.T, cfg *Config)
		want    string
	}{
		"open socket folder": {func(t *testing.T, cfg *Config) {
			expect.NoError(t, os.Mkdir(filepath.Dir(cfg.SocketPath), 0o755))
		}, "other users may enter"},
		"file at the socket's place": {func(t *testing.T, cfg *Config) {
			expect.NoError(t, os.Mkdir(filepath.Dir(cfg.SocketPath), 0o700))
			expect.NoError(t, os.WriteFile(cfg.SocketPath, nil, 0o600))
		}, "is not a socket"},
		"file at the directory's place": {func(t *testing.T, cfg *Config) {
			expect.NoError(t, os.WriteFile(cfg.Dir, nil, 0o600))
		}, "not a directory"},
		"long socket path": {func(_ *testing.T, cfg *Config) {
			cfg.SocketPath = filepath.Join(filepath.Dir(cfg.SocketPath), strings.Repeat("x", 120))
		}, "invalid argument"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(t)
			tt.prepare(t, &cfg)
			s, err := Start(t.Context(), cfg)
			wantError(t, s, err, tt.want)
		})
	}
}

func TestDamagedData(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		damage func(t *testing.T, dir string)
		want   string
	}{
		"database is garbage":   {func(t *testing.T, dir string) { overwrite(t, dbPath(dir), 0, 1<<14) }, "damaged"},
		"database is truncated": {func(t *testing.T, dir string) { expect.NoError(t, os.Truncate(dbPath(dir), 4096*3)) }, "damaged"},
		"database is empty page": {func(t *testing.T, dir string) { expect.NoError(t, os.Truncate(dbPath(dir), 100)) },
			"damaged"},
		// Behind the two meta pages, which alone still look right.
		"database has garbage pages": {func(t *testing.T, dir string) {
			info, err := os.Stat(dbPath(dir))
			expect.NoError(t, err)
			metas := 2 * int64(os.Getpagesize())
			overwrite(t, dbPath(dir), metas, int(info.Size()-metas))
		}, "damaged"},
		"log is gone":    {func(t *testing.T, dir string) { expect.NoError(t, os.Truncate(walPath(t, dir), 0)) }, "damaged"},
		"log is garbage": {func(t *testing.T, dir string) { overwrite(t, walPath(t, dir), 0, 1<<12) }, "damaged"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(t)
			s := mustStart(t, cfg)
			for i := range 100 {
				_, err := s.Client().Put(t.Context(), fmt.Sprint(i), strings.Repeat("v", 1000))
				expect.NoError(t, err)
			}
			expect.NoError(t, s.Close())
			tt.damage(t, cfg.Dir)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s, err := Start(ctx, cfg)
			wantError(t, s, err, cfg.Dir, tt.want)
		})
	}
}

func TestDatabaseInUse(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	mustStart(t, cfg)
	other := cfg
	other.SocketPath = testConfig(t).SocketPath
	s, err := Start(t.Context(), other)
	wantError(t, s, err, dbPath(cfg.Dir), "in use by another process")
}

func TestStartEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s, err := Start(ctx, testConfig(t))
	wantError(t, s, err, "context canceled")
}

func TestQuota(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.QuotaBytes = 1 << 20
	s := mustStart(t, cfg)
	var err error
	for i := 0; i < 5000 && err == nil; i++ {
		_, err = s.Client().Put(t.Context(), fmt.Sprint(i), strings.Repeat("v", 1<<16))
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("write beyond the quota gave %v, want %v", err, rpctypes.ErrNoSpace)
	}
}

func TestCloseDoesNotWaitForWatches(t *testing.T) {
	t.Parallel()
	s := mustStart(t, testConfig(t))
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: s.zap})
	expect.NoError(t, err)
	defer client.Close()
	watch := client.Watch(t.Context(), "key", clientv3.WithCreatedNotify())
	if r := <-watch; !r.Created {
		t.Fatalf("first response is %v", r)
	}
	expect.NoError(t, s.Close())
	expect.NoError(t, s.Close()) // and a second time does nothing
}

func TestAwaitStopped(t *testing.T) {
	t.Parallel()
	const never = time.Hour
	full := errors.New("no space left on device")
	for _, test := range []struct {
		name            string
		stopped, failed time.Duration
		want            string
		after           time.Duration
	}{
		{"a slow disk", 50 * time.Second, never, "", 50 * time.Second},
		{"a hang", never, never, "did not stop within 1m0s", closeTimeout},
		{"failed before", never, 0, "no space left on device", abandonTimeout},
		{"failed meanwhile", never, 20 * time.Second, "no space left on device", 20*time.Second + abandonTimeout},
		{"failed and stopped", 5 * time.Second, 0, "", 5 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(Config{Dir: "etcd"}, klog.Background())
				time.AfterFunc(test.failed, func() { s.fail(full) })
				stopped := make(chan struct{})
				time.AfterFunc(test.stopped, func() { close(stopped) })
				start := time.Now()
				err := s.awaitStopped(stopped)
				if test.want == "" {
					expect.NoError(t, err)
				} else {
					expect.ErrorLine(t, err, test.want)
				}
				if took := time.Since(start); took != test.after {
					t.Errorf("returned after %s, want %s", took, test.after)
				}
			})
		})
	}
}

func TestFatalDoesNotExit(t *testing.T) {
	t.Parallel()
	s := mustStart(t, testConfig(t))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.zap.Fatal("failed to save entries", zap.Error(errors.New("no space left on device")))
		t.Error("the goroutine continued after a fatal entry")
	}()
	<-ended
	err := <-s.Err()
	wantError(t, nil, err, s.cfg.Dir, "failed to save entries: no space left on device")
}

func TestQuietLog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := funcr.New(func(prefix, args string) { fmt.Fprintln(&out, prefix, args) }, funcr.Options{})
	cfg := testConfig(t)
	s, err := Start(klog.NewContext(t.Context(), log), cfg)
	expect.NoError(t, err)
	_, err = s.Client().Put(t.Context(), "key", "value")
	expect.NoError(t, err)
	expect.NoError(t, s.Close())
	if out.Len() > 0 {
		t.Errorf("a quiet start and stop logged:\n%s", out.String())
	}
}
