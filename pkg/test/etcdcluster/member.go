// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdcluster

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/faultproxy"
)

// The first numbers of sockets.
const (
	clientPort = 100
	peerPort   = 200
)

// tailBytes limits the part of a member's log that a failed test prints.
const tailBytes = 2000

// Member is one member of a cluster. Its methods are for one goroutine at a time.
type Member struct {
	// Name of the member.
	Name string

	cluster *Cluster
	index   int
	line    *faultproxy.Proxy

	mu      sync.Mutex
	process *exec.Cmd // nil unless it runs
	exited  chan struct{}
}

func newMember(t testing.TB, c *Cluster, index int) *Member {
	t.Helper()
	m := &Member{Name: fmt.Sprintf("m%d", index), cluster: c, index: index}
	var err error
	m.line, err = faultproxy.New(t.Context(), m.socket())
	expect.NoError(t, err)
	t.Cleanup(m.line.Close)
	return m
}

// socket is the Unix socket that the member itself listens on, behind its proxy.
func (m *Member) socket() string { return filepath.Join(m.cluster.dir, m.clientHost()) }

// clientHost and peerHost are sockets in the cluster's folder. To etcd they are
// hosts with ports.
func (m *Member) clientHost() string { return fmt.Sprintf("localhost:%d", clientPort+m.index) }
func (m *Member) peerHost() string   { return fmt.Sprintf("localhost:%d", peerPort+m.index) }

// Endpoint is the URL of the member. It stays the same whatever happens.
func (m *Member) Endpoint() string {
	if m.cluster.config.Plain {
		return "http://" + m.line.Address()
	}
	return "https://" + m.line.Address()
}

// Client returns a client of this member that is closed with the test.
func (m *Member) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	return m.cluster.clientOf(t, []string{m.Endpoint()})
}

// Start starts the member on its data, and does not wait until it is ready, which may need
// the others.
func (m *Member) Start(t testing.TB) {
	t.Helper()
	expect.NoError(t, m.start())
}

// Dir is the data directory of the member. Tests may empty, copy and replace it while the
// member does not run.
func (m *Member) Dir() string { return filepath.Join(m.cluster.dir, m.Name) }

func (m *Member) start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process != nil {
		return nil
	}
	settings, err := json.Marshal(m.settings())
	if err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(m.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	process := exec.Command(executable) //nolint:noctx // it outlives the call that starts it
	process.Dir = m.cluster.dir
	process.Env = append(os.Environ(), settingsVariable+"="+string(settings))
	process.Stdout, process.Stderr = log, log
	// The member exits when this pipe is closed.
	if _, err = process.StdinPipe(); err != nil {
		return err
	}
	if err := process.Start(); err != nil {
		return fmt.Errorf("start the member %s: %w", m.Name, err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = process.Wait() // the exit is expected
	}()
	m.process, m.exited = process, exited
	return nil
}

func (m *Member) settings() settings {
	s := settings{
		Name: m.Name, ClientHost: m.clientHost(), PeerHost: m.peerHost(), Endpoint: m.Endpoint(),
		Token: m.cluster.token, QuotaBytes: m.cluster.config.QuotaBytes, Plain: m.cluster.config.Plain,
	}
	for _, peer := range m.cluster.Members {
		s.Peers = append(s.Peers, peer.Name+"="+peerScheme+"://"+peer.peerHost())
	}
	return s
}

// Kill kills the member.
func (m *Member) Kill(t testing.TB) {
	t.Helper()
	m.end()
}

// Stop shuts the member down.
func (m *Member) Stop(t testing.TB) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return
	}
	expect.NoError(t, m.process.Process.Signal(syscall.SIGTERM), "stop the member %s", m.Name)
	select {
	case <-m.exited:
	case <-time.After(timeout):
		t.Fatalf("the member %s did not stop", m.Name)
	}
	m.process = nil
}

// Freeze stops the process of the member until Thaw: connections stay open without
// responses.
func (m *Member) Freeze(t testing.TB) { m.signal(t, syscall.SIGSTOP) }

// Thaw reverts Freeze.
func (m *Member) Thaw(t testing.TB) { m.signal(t, syscall.SIGCONT) }

func (m *Member) signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		t.Fatalf("the member %s does not run", m.Name)
	}
	expect.NoError(t, m.process.Process.Signal(signal), "send %s to the member %s", signal, m.Name)
}

func (m *Member) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return
	}
	_ = m.process.Process.Kill() // it may have ended already
	<-m.exited
	m.process = nil
}

func (m *Member) logPath() string { return filepath.Join(m.cluster.dir, m.Name+".log") }

// tail is the end of the member's log.
func (m *Member) tail() string {
	content, err := os.ReadFile(m.logPath())
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(content[max(0, len(content)-tailBytes):]))
}
