// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// childDir tells the test binary to be the process that is killed.
const childDir = "ANNEX_TEST_ETCD_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := writeForEver(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// writeForEver prints the number of each write that etcd has acknowledged.
func writeForEver(dir string) error {
	s, err := Start(context.Background(), Config{Dir: filepath.Join(dir, "etcd"), SocketPath: filepath.Join(dir, "s", "client.sock")})
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		if _, err := s.Client().Put(context.Background(), "count", strconv.Itoa(i)); err != nil {
			return err
		}
		fmt.Println(i)
	}
}

// TestKill kills a first start at many moments: before the socket, between the
// files, while it writes. Each time the next start has to succeed with all that
// was acknowledged.
//
// It is not parallel: between fork and exec a child holds the file locks of the etcds of other
// tests, which then could not start again.
func TestKill(t *testing.T) {
	for _, after := range []time.Duration{5, 10, 15, 20, 25, 30, 35, 40, 50, 60, 80, 100, 150, 250} {
		cfg := testConfig(t)
		acknowledged := killAfter(t, filepath.Dir(cfg.Dir), after*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s, err := Start(ctx, cfg)
		expect.NoError(t, err, "killed after %s", after*time.Millisecond)
		t.Cleanup(func() { s.Close() })
		found, err := s.Client().Get(t.Context(), "count")
		expect.NoError(t, err)
		stored := -1
		if len(found.Kvs) > 0 {
			stored, err = strconv.Atoi(string(found.Kvs[0].Value))
			expect.NoError(t, err)
		}
		if stored < acknowledged {
			t.Errorf("killed after %s: write %d was acknowledged, but etcd has %d", after*time.Millisecond, acknowledged, stored)
		}
		expect.NoError(t, s.Close())
	}
}

// killAfter runs a child for some time and returns the last write it reported.
func killAfter(t *testing.T, dir string, after time.Duration) int {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	child.Env = append(os.Environ(), childDir+"="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	expect.NoError(t, err)
	expect.NoError(t, child.Start())
	killer := time.AfterFunc(after, func() { _ = child.Process.Kill() })
	defer killer.Stop()
	last := -1
	for lines := bufio.NewScanner(out); lines.Scan(); {
		last, err = strconv.Atoi(lines.Text())
		expect.NoError(t, err)
	}
	if err := child.Wait(); child.ProcessState.ExitCode() != -1 {
		t.Fatalf("the child was not killed but ended: %v", err)
	}
	return last
}

// TestUnfinishedStart makes the moment that TestKill meets by chance only.
func TestUnfinishedStart(t *testing.T) {
	t.Parallel()
	unfinished := func(t *testing.T, cfg Config) {
		t.Helper()
		expect.NoError(t, os.RemoveAll(walDir(cfg.Dir)))
		log, err := wal.Create(zap.NewNop(), walDir(cfg.Dir), nil)
		expect.NoError(t, err)
		expect.NoError(t, log.Close())
	}
	t.Run("is removed", func(t *testing.T) {
		t.Parallel()
		cfg := testConfig(t)
		expect.NoError(t, os.MkdirAll(filepath.Dir(dbPath(cfg.Dir)), 0o700))
		db, err := bolt.Open(dbPath(cfg.Dir), 0o600, nil)
		expect.NoError(t, err)
		expect.NoError(t, db.Close())
		unfinished(t, cfg)
		mustStart(t, cfg)
	})
	t.Run("is not taken for one with data", func(t *testing.T) {
		t.Parallel()
		cfg := testConfig(t)
		s := mustStart(t, cfg)
		_, err := s.Client().Put(t.Context(), "key", "value")
		expect.NoError(t, err)
		expect.NoError(t, s.Close())
		unfinished(t, cfg)
		found, err := isUnfinished(cfg.Dir, zap.NewNop())
		expect.NoError(t, err)
		if found {
			t.Error("a database with keys would be removed")
		}
		expect.NoError(t, os.Remove(dbPath(cfg.Dir)))
		if found, err = isUnfinished(cfg.Dir, zap.NewNop()); err != nil || found {
			t.Errorf("a lost database is taken for an unfinished start: %t, %v", found, err)
		}
	})
}
