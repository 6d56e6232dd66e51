// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embeddedetcd

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

const (
	// DefaultQuotaBytes is the size of the database at which etcd refuses
	// writes. It is the largest that etcd's authors recommend: beyond it a
	// defragmentation or a restart takes minutes. etcd's own default of 2 GiB
	// is soon full of custom resources, and the file grows only as it is used.
	DefaultQuotaBytes = 8 << 30

	memberName = "annex"

	// unusedPeerURL satisfies etcd's bookkeeping of members. Nothing listens.
	unusedPeerURL = "http://127.0.0.1:0"

	// progressInterval has the value that Kubernetes sets on its etcd: without it the watch cache of an
	// idle resource keeps a resource version that is compacted, and its clients must list again.
	progressInterval = 5 * time.Second

	// A new leader waits for an election timeout, so that members far away can
	// answer. The only member need not: this takes 0.4 s off each start. Shorter ticks cost more: with 20 ms an idle
	// annex used 29 ms of CPU time a second, with 50 ms 23.
	tickMillis     = 50
	electionMillis = 250

	privateMode fs.FileMode = 0o700
)

// Config configures the etcd.
type Config struct {
	// Dir holds etcd's data. It is created when it does not exist.
	Dir string
	// SocketPath is the absolute path of the client socket. The kernel takes
	// about 107 bytes. Its folder is created when it does not exist and must
	// belong to the user alone.
	SocketPath string
	// QuotaBytes limits the size of the database; 0 is DefaultQuotaBytes.
	QuotaBytes int64
	// MaxRequestBytes limits one request; 0 is etcd's default of 1.5 MiB.
	MaxRequestBytes int64
	// UnsafeNoFsync trades durability for speed. For tests only.
	UnsafeNoFsync bool
}

// prepare creates the directories and checks that other users cannot enter them.
func (cfg *Config) prepare() error {
	for _, dir := range []string{cfg.Dir, filepath.Dir(cfg.SocketPath)} {
		if err := os.MkdirAll(dir, privateMode); err != nil {
			return fmt.Errorf("create %s: %w", dir, err)
		}
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("read permissions of %s: %w", dir, err)
		}
		if perm := info.Mode().Perm(); perm&0o077 != 0 {
			return fmt.Errorf("other users may enter %s (mode %04o): run chmod 700", dir, perm)
		}
	}
	// etcd replaces the socket which a killed process left, but would also
	// remove a file that is none.
	info, err := os.Lstat(cfg.SocketPath)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look for an old socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is in the way: it is not a socket", cfg.SocketPath)
	}
	return nil
}

func (cfg *Config) embedConfig(log *zap.Logger, register func(*grpc.Server)) (*embed.Config, error) {
	peerURL, err := url.Parse(unusedPeerURL)
	if err != nil {
		return nil, fmt.Errorf("parse the peer URL: %w", err)
	}
	clientURL := url.URL{Scheme: "unix", Path: cfg.SocketPath}

	ec := embed.NewConfig()
	ec.Name = memberName
	ec.Dir = cfg.Dir
	ec.ListenPeerUrls = nil
	ec.AdvertisePeerUrls = []url.URL{*peerURL}
	ec.ListenClientUrls = []url.URL{clientURL}
	ec.AdvertiseClientUrls = []url.URL{clientURL}
	ec.InitialCluster = ec.InitialClusterFromName(memberName)
	// The API server compacts, and must be the only one to: it knows how much
	// history its watches and continue tokens need.
	ec.AutoCompactionRetention = "0"
	ec.QuotaBackendBytes = cfg.QuotaBytes
	if ec.QuotaBackendBytes == 0 {
		ec.QuotaBackendBytes = DefaultQuotaBytes
	}
	if cfg.MaxRequestBytes > 0 {
		ec.MaxRequestBytes = uint(cfg.MaxRequestBytes)
	}
	ec.WatchProgressNotifyInterval = progressInterval
	ec.TickMs, ec.ElectionMs = tickMillis, electionMillis
	ec.EnableGRPCGateway = false
	ec.UnsafeNoFsync = cfg.UnsafeNoFsync
	ec.ServiceRegister = register
	ec.ZapLoggerBuilder = embed.NewZapLoggerBuilder(log)
	return ec, nil
}

// DatabaseSize returns the size of the database in a folder of etcd, 0 without one.
func DatabaseSize(dir string) int64 {
	info, err := os.Stat(dbPath(dir))
	if err != nil {
		return 0
	}
	return info.Size()
}
