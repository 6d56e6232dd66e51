// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/process"
)

// TestFreshServer runs annex in a folder with a long path and spaces, without home directory and environment, and
// inspects what it has before its first custom resource.
func TestFreshServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for len(dir) < 150 {
		dir = filepath.Join(dir, "a folder with a long name")
	}
	expect.NoError(t, os.MkdirAll(dir, 0o700))
	command := exec.Command(programs.annex, "serve", "--secure-port=0")
	command.Dir, command.Env = dir, []string{}
	annex, err := process.StartCommand(command)
	expect.NoError(t, err)
	t.Cleanup(func() { stop(t, annex) })
	s := &server{Annex: annex, dataDir: filepath.Join(dir, ".annex")}
	expect.NoError(t, s.connect(t.Context()))
	if want := filepath.Join(s.dataDir, "admin.kubeconfig"); annex.Kubeconfig != want {
		t.Errorf("the kubeconfig is %s, want %s", annex.Kubeconfig, want)
	}
	expect.Contains(t, s.kubectl.run(t, "get", "namespaces"), "default")
	t.Run("files are private", s.filesArePrivate)
	t.Run("only one port", s.onlyOnePort)
	t.Run("metrics", s.metricsAreFew)
}

func (s *server) filesArePrivate(t *testing.T) {
	err := filepath.WalkDir(s.dataDir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, os.ErrNotExist) {
			return nil // etcd renames files while it runs
		}
		if err != nil {
			return err
		}
		// A folder of mode 0700 protects its content; certificates are public.
		if info.IsDir() && info.Mode().Perm()&0o077 != 0 && path != s.dataDir {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	expect.Succeeds(t, err)
	if info, err := os.Stat(s.dataDir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the data directory: %v, %v", info, err)
	}
	if info, err := os.Stat(s.Kubeconfig); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig: %v, %v", info, err)
	}
}

// onlyOnePort fails if annex listens for more than the API: etcd uses a socket in the data directory.
func (s *server) onlyOnePort(t *testing.T) {
	listening := listeningPorts(t, s.PID())
	if len(listening) != 1 {
		t.Errorf("annex listens on %v, want the API's port only", listening)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.Clients.Config.CAData)
	connection, err := tls.Dial("tcp", s.URL[len("https://"):], &tls.Config{RootCAs: pool, MaxVersion: tls.VersionTLS11})
	if err == nil {
		_ = connection.Close()
		t.Error("the server accepts TLS 1.1")
	}
}

// maxSeries bounds the series of a server without custom resources. Each costs a Prometheus some kB.
const maxSeries = 3000

// metricsAreFew counts the series of a fresh server, and checks annex's own metrics against Prometheus' conventions.
func (s *server) metricsAreFew(t *testing.T) {
	content, err := s.Kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	expect.NoError(t, err)
	series, families := 0, map[string]int{}
	for line := range strings.Lines(string(content)) {
		if !strings.HasPrefix(line, "#") {
			series++
			families[line[:strings.IndexAny(line, "{ ")]]++
		}
	}
	if series > maxSeries {
		t.Errorf("%d series, want at most %d: %v", series, maxSeries, families)
	}
	for _, name := range []string{"annex_build_info", "annex_store_available", "annex_store_disk_free_bytes"} {
		if families[name] == 0 {
			t.Errorf("there is no %s", name)
		}
	}
	expect.MetricNames(t, string(content))
}

// listening is the state of a listening socket in /proc/net/tcp.
const listening = "0A"

// listeningPorts lists the TCP addresses that a process listens on, in the
// kernel's own notation.
func listeningPorts(t *testing.T, pid int) []string {
	t.Helper()
	sockets, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(sockets) == 0 {
		t.Skipf("this system does not report listening sockets (%v)", err)
	}
	inodes := map[string]bool{}
	for _, socket := range sockets {
		if target, err := os.Readlink(socket); err == nil {
			inodes[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")] = true
		}
	}
	var found []string
	for _, table := range []string{"tcp", "tcp6"} {
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			continue // no IPv6
		}
		for line := range strings.Lines(string(content)) {
			if fields := strings.Fields(line); len(fields) > 9 && fields[3] == listening && inodes[fields[9]] {
				found = append(found, fields[1])
			}
		}
	}
	return found
}
