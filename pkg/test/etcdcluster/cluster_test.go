// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdcluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func put(t *testing.T, client *clientv3.Client, key, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := client.Put(ctx, key, value); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, client *clientv3.Client, key string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	found, err := client.Get(ctx, key)
	expect.NoError(t, err)
	if len(found.Kvs) == 0 {
		return ""
	}
	return string(found.Kvs[0].Value)
}

func TestKillMembers(t *testing.T) {
	t.Parallel()
	c := Start(t, Config{})
	client := c.Client(t)
	for i, m := range c.Members {
		m.Kill(t)
		c.WaitReady(t)
		put(t, client, "key", fmt.Sprint(i))
		m.Start(t)
		c.retry(t, "the member is back", func(ctx context.Context) error {
			_, err := client.Status(ctx, m.Endpoint())
			return err
		})
	}
	if got := get(t, c.Leader(t).Client(t), "key"); got != "2" {
		t.Errorf("the last write is %q", got)
	}
	for _, m := range c.Members {
		m.Kill(t)
	}
	for _, m := range c.Members {
		m.Start(t)
	}
	c.WaitReady(t)
	if got := get(t, client, "key"); got != "2" {
		t.Errorf("after killing all members the last write is %q", got)
	}
	leader := c.Leader(t)
	leader.Stop(t)
	put(t, client, "key", "3")
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	c := Start(t, Config{Members: 1})
	client := c.Client(t)
	c.Members[0].Freeze(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := client.Get(ctx, "key"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a frozen member responded: %v", err)
	}
	c.Members[0].Thaw(t)
	put(t, client, "key", "value")
}

func TestCutAndSlow(t *testing.T) {
	t.Parallel()
	c := Start(t, Config{Members: 1, Plain: true})
	client := c.Client(t)
	put(t, client, "key", "value")
	c.Members[0].Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := client.Get(ctx, "key"); err == nil {
		t.Error("a disconnected member responded")
	}
	c.Members[0].Restore()
	if got := get(t, client, "key"); got != "value" {
		t.Errorf("%q after the cut", got)
	}
	const delay = 50 * time.Millisecond
	c.Members[0].SlowDown(delay)
	begin := time.Now()
	get(t, client, "key")
	if took := time.Since(begin); took < 2*delay {
		t.Errorf("a slow member responded in %s", took)
	}
	c.Members[0].SlowDown(0)
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	c := Start(t, Config{Members: 1})
	endpoint, err := url.Parse(c.Endpoints()[0])
	expect.NoError(t, err)
	greet := func(pairs ...KeyPair) error {
		config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.Authority.pool()}
		for _, pair := range pairs {
			certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
			expect.NoError(t, err)
			config.Certificates = append(config.Certificates, certificate)
		}
		conn, err := tls.Dial("tcp", endpoint.Host, config)
		if err != nil {
			return err
		}
		defer conn.Close()
		// A server refuses a certificate only after the client's handshake.
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		_, err = conn.Read(make([]byte, 1))
		var timeout interface{ Timeout() bool }
		if errors.As(err, &timeout) && timeout.Timeout() {
			return nil
		}
		return err
	}
	tests := map[string]struct {
		pairs []KeyPair
		want  string
	}{
		"valid":   {[]KeyPair{c.Authority.Client(t, time.Now().Add(time.Hour))}, ""},
		"expired": {[]KeyPair{c.Authority.Client(t, time.Now().Add(-time.Minute))}, "expired"},
		"foreign": {[]KeyPair{NewAuthority(t).Client(t, time.Now().Add(time.Hour))}, "certificate"},
		"none":    {nil, "certificate required"},
	}
	for name, tt := range tests {
		err := greet(tt.pairs...)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}

func TestFill(t *testing.T) {
	t.Parallel()
	c := Start(t, Config{Members: 1, QuotaBytes: 4 << 20})
	c.Fill(t, "fill")
	if _, err := c.Client(t).Put(t.Context(), "key", "value"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("got %v", err)
	}
}

func TestImpersonate(t *testing.T) {
	t.Parallel()
	first := Start(t, Config{Members: 1})
	second := Start(t, Config{Members: 1, Authority: first.Authority})
	client := first.Client(t)
	id := func() uint64 {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		found, err := client.Get(ctx, "key")
		expect.NoError(t, err)
		return found.Header.ClusterId
	}
	own := id()
	back := first.Impersonate(second)
	if id() == own {
		t.Error("the endpoint is not redirected")
	}
	back()
	if id() != own {
		t.Error("the endpoint is not restored")
	}
}
