// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/process"
)

// programs are the paths of the programs under test, set by TestMain.
var programs struct{ annex, kubectl string }

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (int, error) {
	ctx := context.Background()
	var err error
	if programs.annex, err = process.Bin(ctx, "annex"); err != nil {
		return 0, err
	}
	if programs.kubectl, err = process.Bin(ctx, "kubectl"); err != nil {
		return 0, err
	}
	defer stopShared()
	return m.Run(), nil
}

// server is a running annex with clients.
type server struct {
	*process.Annex
	*clients.Clients

	dataDir string
	kubectl kubectl
}

// startServer starts an annex for one test, on a new data directory.
func startServer(t *testing.T, flags ...string) *server {
	t.Helper()
	return startServerIn(t, t.TempDir(), flags...)
}

// startServerIn starts an annex for one test.
func startServerIn(t *testing.T, dataDir string, flags ...string) *server {
	t.Helper()
	s, err := newServer(t.Context(), dataDir, flags...)
	if s != nil {
		t.Cleanup(func() { stop(t, s.Annex) })
	}
	expect.NoError(t, err)
	return s
}

// newServer returns the server also with an error, if its process was started.
func newServer(ctx context.Context, dataDir string, flags ...string) (*server, error) {
	annex, err := process.Start(programs.annex, dataDir, flags...)
	if err != nil {
		return nil, err
	}
	s := &server{Annex: annex, dataDir: dataDir}
	return s, s.connect(ctx)
}

// connect waits until the server is ready, and creates its clients.
func (s *server) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, poll.Timeout)
	defer cancel()
	if err := s.WaitReady(ctx); err != nil {
		return err
	}
	config, err := s.Annex.Config()
	if err != nil {
		return err
	}
	config.WarningHandler = restclient.NoWarnings{} // deprecated versions are used on purpose
	s.kubectl = kubectl{kubeconfig: s.Kubeconfig, home: filepath.Join(filepath.Dir(s.dataDir), "home-"+filepath.Base(s.dataDir))}
	s.Clients, err = clients.New(config)
	return err
}

// stop stops a server with SIGTERM, and fails unless it exits with code 0.
func stop(t testing.TB, annex *process.Annex) {
	t.Helper()
	select {
	case <-annex.Exited():
		return
	default:
	}
	expect.Succeeds(t, annex.Stop(poll.Timeout))
	if t.Failed() && annex.Stderr() != "" {
		t.Logf("stderr of annex:\n%s", annex.Stderr())
	}
}

// shared is a server for all tests that do not stop it and use their own names and namespaces.
var shared struct {
	once   sync.Once
	dir    string
	server *server
	err    error
}

func sharedServer(t *testing.T) *server {
	t.Helper()
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "annex-e2e-"); shared.err != nil {
			return
		}
		shared.server, shared.err = newServer(context.Background(), filepath.Join(shared.dir, "data"))
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

func stopShared() {
	if shared.server != nil {
		if err := shared.server.Stop(poll.Timeout); err != nil {
			fmt.Fprintln(os.Stderr, "the shared server:", err)
		}
	}
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
}

// kubectl runs bin/kubectl with one server.
type kubectl struct {
	kubeconfig string
	// home holds kubectl's discovery cache.
	home string
}

// output is the result of a run of kubectl.
type output struct {
	stdout, stderr string
	code           int
}

func (k kubectl) command(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, programs.kubectl, args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+k.kubeconfig, "HOME="+k.home, "KUBECTL_KUBERC=false")
	return command
}

// try runs kubectl, which may fail.
func (k kubectl) try(t *testing.T, stdin string, args ...string) output {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*poll.Timeout)
	defer cancel()
	command := k.command(ctx, args...)
	var stdout, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
	}
	return output{stdout: stdout.String(), stderr: stderr.String(), code: command.ProcessState.ExitCode()}
}

// run runs kubectl, which must succeed, and returns its output.
func (k kubectl) run(t *testing.T, args ...string) string {
	t.Helper()
	return k.feed(t, "", args...)
}

// feed is run with a manifest on stdin.
func (k kubectl) feed(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	result := k.try(t, stdin, args...)
	if result.code != 0 {
		t.Fatalf("kubectl %s: exit code %d\n%s%s", strings.Join(args, " "), result.code, result.stdout, result.stderr)
	}
	return result.stdout
}

// refuse runs kubectl, which must fail and print all reasons.
func (k kubectl) refuse(t *testing.T, stdin string, args []string, reasons ...string) {
	t.Helper()
	result := k.try(t, stdin, args...)
	if result.code == 0 {
		t.Errorf("kubectl %s succeeded:\n%s", strings.Join(args, " "), result.stdout)
		return
	}
	for _, reason := range reasons {
		if !strings.Contains(result.stderr, reason) {
			t.Errorf("kubectl %s: stderr lacks %q:\n%s", strings.Join(args, " "), reason, result.stderr)
		}
	}
}

// namespace creates a namespace until the test ends.
func (s *server) namespace(t *testing.T) string {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	s.kubectl.run(t, "create", "namespace", name)
	return name
}

// matchesColumns checks the header of a table that kubectl printed.
func matchesColumns(t *testing.T, table string, columns ...string) {
	t.Helper()
	header, _, _ := strings.Cut(table, "\n")
	if got, want := strings.Join(strings.Fields(header), " "), strings.Join(columns, " "); got != want {
		t.Errorf("columns are %q, want %q:\n%s", got, want, table)
	}
}
