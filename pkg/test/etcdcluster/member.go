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

	"github.com/annex-dev/annex/pkg/test/faultproxy"
)

// What the names of sockets begin to count at.
const (
	clientPort = 100
	peerPort   = 200
)

// tailBytes is how much of a member's log a failed test shows.
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
	if m.line, err = faultproxy.New(t.Context(), m.socket()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.line.Close)
	return m
}

// socket is where the member itself listens.
func (m *Member) socket() string { return filepath.Join(m.cluster.dir, m.clientHost()) }

// clientHost and peerHost are sockets in the cluster's folder. To etcd they are
// hosts with ports, which is why they look like this.
func (m *Member) clientHost() string { return fmt.Sprintf("localhost:%d", clientPort+m.index) }
func (m *Member) peerHost() string   { return fmt.Sprintf("localhost:%d", peerPort+m.index) }

// Endpoint is the URL of the member. It stays the same whatever happens.
func (m *Member) Endpoint() string {
	if m.cluster.config.Plain {
		return "http://" + m.line.Address()
	}
	return "https://" + m.line.Address()
}

// Client returns a client of this member alone that ends with the test.
func (m *Member) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	return m.cluster.clientOf(t, []string{m.Endpoint()})
}

// Start starts the member on the data that it has, and does not wait for it:
// without the others it would not become ready.
func (m *Member) Start(t testing.TB) {
	t.Helper()
	if err := m.start(); err != nil {
		t.Fatal(err)
	}
}

// Dir is where the member keeps its data. What tests do with it while the member does not
// run is what operators do: they empty it, copy it, and put a copy in its place.
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
	// The member ends when the other end of this is gone, however that went.
	if _, err = process.StdinPipe(); err != nil {
		return err
	}
	if err := process.Start(); err != nil {
		return fmt.Errorf("start the member %s: %w", m.Name, err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = process.Wait() // whoever ends it knows
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

// Kill ends the member as a power failure does: at once.
func (m *Member) Kill(t testing.TB) {
	t.Helper()
	m.end()
}

// Stop ends the member in order.
func (m *Member) Stop(t testing.TB) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return
	}
	if err := m.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("stop the member %s: %v", m.Name, err)
	}
	select {
	case <-m.exited:
	case <-time.After(patience):
		t.Fatalf("the member %s did not stop", m.Name)
	}
	m.process = nil
}

// Freeze has the member stand still, with all its connections, until it is thawed:
// it neither answers nor refuses.
func (m *Member) Freeze(t testing.TB) { m.signal(t, syscall.SIGSTOP) }

// Thaw takes back Freeze.
func (m *Member) Thaw(t testing.TB) { m.signal(t, syscall.SIGCONT) }

func (m *Member) signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		t.Fatalf("the member %s does not run", m.Name)
	}
	if err := m.process.Process.Signal(signal); err != nil {
		t.Fatalf("sending %s to the member %s: %v", signal, m.Name, err)
	}
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

// Cut ends all connections of clients to the member and lets no other begin. Other
// members still reach it.
func (m *Member) Cut() { m.line.Cut() }

// Mend takes back Cut.
func (m *Member) Mend() { m.line.Restore() }

// SlowDown has whatever goes between the member and clients take longer by delay, in
// each direction; 0 takes it back.
func (m *Member) SlowDown(delay time.Duration) { m.line.SetDelay(delay) }

func (m *Member) logPath() string { return filepath.Join(m.cluster.dir, m.Name+".log") }

// tail is the end of the member's log.
func (m *Member) tail() string {
	content, err := os.ReadFile(m.logPath())
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(content[max(0, len(content)-tailBytes):]))
}
