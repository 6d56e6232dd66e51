// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdcluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// timeout bounds every wait. It is long because test machines are busy.
const timeout = 60 * time.Second

// Config configures a cluster. The zero value has three members.
type Config struct {
	// Members is the number of members.
	Members int
	// QuotaBytes is the size at which members refuse writes; 0 is etcd's default.
	QuotaBytes int64
	// Authority signs the certificates; nil is a new one.
	Authority *Authority
	// Plain disables TLS.
	Plain bool
	// Twin is a cluster with the same ID, as all clusters with etcd's defaults have.
	Twin *Cluster
}

// Cluster is an etcd cluster that runs until the test ends.
type Cluster struct {
	// Members are its members, running or not.
	Members []*Member
	// Authority signs the certificates of members and clients.
	Authority *Authority

	config Config
	dir    string
	token  string
}

// Start starts a cluster, and waits until it accepts writes.
func Start(t testing.TB, config Config) *Cluster {
	t.Helper()
	if config.Members == 0 {
		config.Members = 3
	}
	// The path of a socket must be shorter than t.TempDir.
	dir, err := os.MkdirTemp("/tmp", "annex-etcd-")
	expect.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := &Cluster{Authority: config.Authority, config: config, dir: dir}
	if c.Authority == nil {
		c.Authority = NewAuthority(t)
	}
	c.token = dir
	if config.Twin != nil {
		c.token = config.Twin.token
	}
	c.writeCertificates(t)
	for i := range config.Members {
		c.Members = append(c.Members, newMember(t, c, i))
	}
	t.Cleanup(func() {
		for _, m := range c.Members {
			m.end()
			if t.Failed() {
				t.Logf("the end of the log of the etcd member %s:\n%s", m.Name, m.tail())
			}
		}
	})
	for _, m := range c.Members {
		m.Start(t)
	}
	c.WaitReady(t)
	return c
}

// writeCertificates writes the files that members read.
func (c *Cluster) writeCertificates(t testing.TB) {
	t.Helper()
	serving := c.Authority.Serving(t)
	for name, content := range map[string][]byte{"ca.crt": c.Authority.CA, "tls.crt": serving.Cert, "tls.key": serving.Key} {
		expect.NoError(t, os.WriteFile(filepath.Join(c.dir, name), content, 0o600))
	}
}

// Endpoints are the URLs of the members. They stay the same whatever happens.
func (c *Cluster) Endpoints() []string {
	var endpoints []string
	for _, m := range c.Members {
		endpoints = append(endpoints, m.Endpoint())
	}
	return endpoints
}

// Client returns a client of all members that ends with the test.
func (c *Cluster) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	return c.clientOf(t, c.Endpoints())
}

func (c *Cluster) clientOf(t testing.TB, endpoints []string) *clientv3.Client {
	t.Helper()
	config := clientv3.Config{
		Endpoints:   endpoints,
		Logger:      zap.NewNop(),
		DialTimeout: timeout,
		// Reconnect before the test times out.
		BackoffWaitBetween:   50 * time.Millisecond,
		DialKeepAliveTime:    5 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
	}
	if !c.config.Plain {
		config.TLS = c.clientTLS(t)
	}
	client, err := clientv3.New(config)
	expect.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func (c *Cluster) clientTLS(t testing.TB) *tls.Config {
	t.Helper()
	pair := c.Authority.Client(t, time.Now().Add(time.Hour))
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	expect.NoError(t, err)
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.Authority.pool(), Certificates: []tls.Certificate{certificate}}
}

// WaitReady waits until the cluster accepts writes.
func (c *Cluster) WaitReady(t testing.TB) {
	t.Helper()
	client := c.Client(t)
	defer client.Close()
	c.retry(t, "the cluster accepts writes", func(ctx context.Context) error {
		_, err := client.Put(ctx, "etcdcluster/ready", "")
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return nil // it responds
		}
		return err
	})
}

// Leader returns the current leader.
func (c *Cluster) Leader(t testing.TB) *Member {
	t.Helper()
	client := c.Client(t)
	defer client.Close()
	var leader *Member
	c.retry(t, "a member leads", func(ctx context.Context) error {
		var asked error
		for _, m := range c.Members {
			status, err := client.Status(ctx, m.Endpoint())
			switch {
			case err != nil:
				asked = errors.Join(asked, err)
			case status.Leader == status.Header.MemberId:
				leader = m
				return nil
			}
		}
		return errors.Join(errors.New("there is no leader"), asked)
	})
	return leader
}

// full is the percentage of the quota that values use in a full cluster.
const full = 95

// Fill writes below prefix until the cluster is out of space, so that only deletions make
// room.
func (c *Cluster) Fill(t testing.TB, prefix string) {
	t.Helper()
	client := c.Client(t)
	defer client.Close()
	value := strings.Repeat("x", 64<<10)
	i := 0
	c.retry(t, "the cluster is out of space", func(ctx context.Context) error {
		// etcd checks the committed size, and commits every 100 ms, so it accepts more
		// than the quota.
		for ; ; i++ {
			_, err := client.Put(ctx, fmt.Sprintf("%s/%06d", prefix, i), value)
			if errors.Is(err, rpctypes.ErrNoSpace) {
				return c.makeRoom(ctx, client)
			}
			if err != nil {
				return err
			}
		}
	})
}

// makeRoom defragments the members, and returns nil if there was no free space.
func (c *Cluster) makeRoom(ctx context.Context, client *clientv3.Client) error {
	isFull := true
	for _, m := range c.Members {
		if _, err := client.Defragment(ctx, m.Endpoint()); err != nil {
			return fmt.Errorf("defragment member %s: %w", m.Name, err)
		}
		status, err := client.Status(ctx, m.Endpoint())
		if err != nil {
			return fmt.Errorf("get the size of member %s: %w", m.Name, err)
		}
		isFull = isFull && status.DbSize > c.config.QuotaBytes/100*full
	}
	if isFull {
		return nil
	}
	if _, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		return fmt.Errorf("disarm alarms: %w", err)
	}
	return errors.New("there was room in the files of its members")
}

// retry calls do until it succeeds.
func (c *Cluster) retry(t testing.TB, what string, do func(ctx context.Context) error) {
	t.Helper()
	poll.UntilNoError(t, what, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		return do(ctx)
	})
}

// Impersonate redirects the endpoints of c to another cluster of the same size and
// authority, and closes connections. back restores the endpoints.
func (c *Cluster) Impersonate(other *Cluster) (back func()) {
	for i, m := range c.Members {
		m.line.Retarget(other.Members[i].socket())
	}
	return func() {
		for _, m := range c.Members {
			m.line.Retarget(m.socket())
		}
	}
}
