// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/cmd"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/process"
	"github.com/annex-dev/annex/pkg/test/testserver"
)

const (
	// serveVariable makes the test binary behave as annex.
	serveVariable = "ANNEX_INTEGRATION_TEST_SERVE"
	// parallelTests is more than there are cores: tests mostly wait.
	parallelTests = "16"
)

// Users of the shared server's token file.
const (
	masterToken   = "master-token"
	outsiderToken = "outsider-token"
	tokenFile     = masterToken + `,alice,1,"system:masters"` + "\n" + outsiderToken + `,bob,2,"builders"` + "\n"
)

func TestMain(m *testing.M) {
	if os.Getenv(serveVariable) != "" {
		os.Exit(cmd.Execute(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	flag.Parse()
	explicit := false
	flag.Visit(func(f *flag.Flag) { explicit = explicit || f.Name == "test.parallel" })
	if !explicit {
		if err := flag.Set("test.parallel", parallelTests); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	// As annex itself at verbosity 0: klog still writes errors to stderr.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	code := m.Run()
	if err := errors.Join(shared.stop(), readable.stop()); err != nil {
		fmt.Fprintln(os.Stderr, "the shared servers:", err)
		return 1
	}
	return code
}

// sharedServer is one server for all tests that neither stop nor configure it.
// It is started by the first test that needs it.
type sharedServer struct {
	once   sync.Once
	dir    string
	server *testserver.Server
	err    error
}

// On readable every object can be read at all times: the deletion of an owner waits
// while dependents of it may be unreadable.
var shared, readable sharedServer

func (s *sharedServer) start() {
	if s.dir, s.err = os.MkdirTemp("", "annex-integration-"); s.err != nil {
		return
	}
	tokens := filepath.Join(s.dir, "tokens.csv")
	if s.err = os.WriteFile(tokens, []byte(tokenFile), 0o600); s.err != nil {
		return
	}
	s.server, s.err = testserver.Launch(filepath.Join(s.dir, "data"), "--token-auth-file="+tokens)
}

func (s *sharedServer) stop() error {
	if s.server != nil {
		if err := s.server.Shutdown(); err != nil {
			return err
		}
	}
	if s.dir != "" {
		return os.RemoveAll(s.dir)
	}
	return nil
}

// sharedAnnex returns clients of the shared server.
func sharedAnnex(t *testing.T) *annex {
	t.Helper()
	return shared.annex(t)
}

// readableAnnex returns clients of the server without unreadable objects.
func readableAnnex(t *testing.T) *annex {
	t.Helper()
	return readable.annex(t)
}

func (s *sharedServer) annex(t *testing.T) *annex {
	t.Helper()
	s.once.Do(s.start)
	if s.err != nil {
		t.Fatalf("start the shared server: %v", s.err)
	}
	return newAnnex(t, s.server)
}

// startProcess runs annex as a process of its own, for tests of state that is global to
// a process and of its exit.
func startProcess(t *testing.T, dataDir string, flags ...string) *process.Annex {
	t.Helper()
	return startCommand(t, append([]string{"serve", "--data-dir=" + dataDir, "--secure-port=0"}, flags...)...)
}

// startCommand runs a command of annex as a process.
func startCommand(t *testing.T, args ...string) *process.Annex {
	t.Helper()
	executable, err := os.Executable()
	expect.NoError(t, err)
	command := exec.Command(executable, args...)
	command.Env = append(os.Environ(), serveVariable+"=1")
	p, err := process.StartCommand(command)
	expect.NoError(t, err)
	t.Cleanup(p.Kill)
	return p
}

// startAnnexProcess is startAnnex with a process of its own.
func startAnnexProcess(t *testing.T, flags ...string) *annex {
	t.Helper()
	dataDir := t.TempDir()
	return clientsOf(t, startProcess(t, dataDir, flags...), dataDir)
}

// clientsOf waits until a process is ready and returns clients of it.
func clientsOf(t *testing.T, p *process.Annex, dataDir string) *annex {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), poll.Timeout)
	defer cancel()
	expect.NoError(t, p.WaitReady(ctx))
	config, err := p.Config()
	expect.NoError(t, err)
	return newAnnex(t, &testserver.Server{URL: p.URL, DataDir: dataDir, Kubeconfig: p.Kubeconfig, AnnexConfig: config})
}
