// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdcluster

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
)

// settingsVariable names the environment variable with the settings of a member.
const settingsVariable = "ANNEX_TEST_ETCD_MEMBER"

// settings are the settings of a member.
type settings struct {
	Name                 string
	ClientHost, PeerHost string
	Endpoint             string
	Peers                []string
	Token                string // distinguishes clusters with the same peers
	QuotaBytes           int64
	Plain                bool
}

// A test binary becomes a member before main, so that tests need no TestMain.
func init() {
	encoded := os.Getenv(settingsVariable)
	if encoded == "" {
		return
	}
	if err := serve(encoded); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(encoded string) error {
	var s settings
	if err := json.Unmarshal([]byte(encoded), &s); err != nil {
		return fmt.Errorf("read %s: %w", settingsVariable, err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1) // the test has ended
	}()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	config, err := s.config()
	if err != nil {
		return err
	}
	member, err := embed.StartEtcd(config)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	select {
	case err := <-member.Err():
		return fmt.Errorf("etcd stopped: %w", err)
	case <-stop:
		member.Close()
		return nil
	}
}

// peerScheme is without TLS, which etcd does not support between members on sockets. The
// permissions of the directory protect them.
const peerScheme = "unix"

func (s settings) clientScheme() string {
	if s.Plain {
		return "unix"
	}
	return "unixs"
}

func (s settings) config() (*embed.Config, error) {
	endpoint, err := url.Parse(s.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("parse the endpoint: %w", err)
	}
	config := embed.NewConfig()
	config.Name, config.Dir = s.Name, s.Name
	config.ListenClientUrls = []url.URL{{Scheme: s.clientScheme(), Host: s.ClientHost}}
	config.AdvertiseClientUrls = []url.URL{*endpoint}
	config.ListenPeerUrls = []url.URL{{Scheme: peerScheme, Host: s.PeerHost}}
	config.AdvertisePeerUrls = config.ListenPeerUrls
	config.InitialCluster = strings.Join(s.Peers, ",")
	config.InitialClusterToken = s.Token
	config.QuotaBackendBytes = s.QuotaBytes
	config.UnsafeNoFsync = true // a killed process loses nothing
	config.EnableGRPCGateway = false
	// The fastest elections that work on busy machines.
	config.TickMs, config.ElectionMs = 50, 500
	config.LogLevel = "warn"
	if !s.Plain {
		config.ClientTLSInfo = transport.TLSInfo{CertFile: "tls.crt", KeyFile: "tls.key", TrustedCAFile: "ca.crt", ClientCertAuth: true}
	}
	return config, nil
}
