// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process runs bin/annex as a separate process, and observes it from outside.
package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// announcement matches the line that annex prints when it is ready.
var announcement = regexp.MustCompile(`is ready at (https://\S+), use it with: export KUBECONFIG=(.+)$`)

// Annex is a running `annex serve`.
type Annex struct {
	// URL and Kubeconfig are set by WaitReady.
	URL        string
	Kubeconfig string

	command *exec.Cmd
	started time.Time
	stdout  lockedBuffer
	stderr  lockedBuffer
	readyc  chan [2]string // URL and kubeconfig
	exited  chan struct{}
	exitErr error
}

// ModuleRoot returns the path of the repository.
func ModuleRoot(ctx context.Context) (string, error) {
	output, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(output))), nil
}

// Bin returns the path of a program under bin/ of the repository.
func Bin(ctx context.Context, name string) (string, error) {
	root, err := ModuleRoot(ctx)
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("run `make build kubectl operator` first: %w", err)
	}
	return path, nil
}

// Start starts `annex serve` on a data directory and a free port, and does not wait.
func Start(binary, dataDir string, flags ...string) (*Annex, error) {
	//nolint:noctx // the process outlives what starts it
	return StartCommand(exec.Command(binary, append([]string{"serve", "--data-dir=" + dataDir, "--secure-port=0"}, flags...)...))
}

// StartCommand is Start with any command line, environment and working directory.
func StartCommand(command *exec.Cmd) (*Annex, error) {
	a := &Annex{command: command, readyc: make(chan [2]string, 1), exited: make(chan struct{})}
	command.Stderr = &a.stderr
	// Wait would close Cmd.StdoutPipe before the last line is read.
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("create a pipe for %s: %w", command.Path, err)
	}
	command.Stdout = writer
	a.started = time.Now()
	err = command.Start()
	closeErr := writer.Close()
	if err := errors.Join(err, closeErr); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", command.Path, err), reader.Close())
	}
	go a.watchOutput(reader)
	go func() {
		defer close(a.exited)
		a.exitErr = command.Wait()
	}()
	return a, nil
}

func (a *Annex) watchOutput(output io.ReadCloser) {
	defer output.Close()
	lines := bufio.NewScanner(io.TeeReader(output, &a.stdout))
	for lines.Scan() {
		if found := announcement.FindStringSubmatch(lines.Text()); found != nil {
			select {
			case a.readyc <- [2]string{found[1], found[2]}:
			default: // annex prints it once
			}
		}
	}
}

// WaitReady waits until annex prints that it is ready.
func (a *Annex) WaitReady(ctx context.Context) error {
	select {
	case ready := <-a.readyc:
		a.URL, a.Kubeconfig = ready[0], strings.Trim(ready[1], "'")
		return nil
	case <-a.exited:
		return fmt.Errorf("annex exited with code %d before it was ready: %s", a.exitCode(), a.Stderr())
	case <-ctx.Done():
		return fmt.Errorf("annex did not become ready in %s, stderr so far: %s: %w", time.Since(a.started).Round(time.Millisecond), a.Stderr(), context.Cause(ctx))
	}
}

// Config returns the administrator's client configuration, without a rate limit.
func (a *Annex) Config() (*restclient.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", a.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig that annex wrote: %w", err)
	}
	config.QPS = -1
	return config, nil
}

// PID returns the ID of the process.
func (a *Annex) PID() int { return a.command.Process.Pid }

// Started returns the start time of the process.
func (a *Annex) Started() time.Time { return a.started }

// Stdout returns the stdout of the process so far.
func (a *Annex) Stdout() string { return a.stdout.String() }

// Stderr returns the stderr of the process so far.
func (a *Annex) Stderr() string { return a.stderr.String() }

// Signal sends a signal.
func (a *Annex) Signal(signal os.Signal) error { return a.command.Process.Signal(signal) }

// Exited is closed when the process has exited.
func (a *Annex) Exited() <-chan struct{} { return a.exited }

// Wait waits for the end of the process and returns its exit code, -1 after a signal.
func (a *Annex) Wait(ctx context.Context) (int, error) {
	select {
	case <-a.exited:
		return a.exitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("annex still runs, stderr so far: %s: %w", a.Stderr(), context.Cause(ctx))
	}
}

func (a *Annex) exitCode() int {
	var exit *exec.ExitError
	if errors.As(a.exitErr, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// Stop sends SIGTERM, and waits until the process has ended with code 0. One that still
// runs after the timeout prints its stacks, and is killed.
func (a *Annex) Stop(timeout time.Duration) error {
	if err := a.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop annex: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if _, err := a.Wait(ctx); err != nil {
		_ = a.Signal(syscall.SIGQUIT)
		select {
		case <-a.exited:
		case <-time.After(time.Second):
			a.Kill()
		}
	}
	if code := a.exitCode(); code != 0 {
		return fmt.Errorf("annex exited with code %d after SIGTERM: %s", code, a.Stderr())
	}
	return nil
}

// Kill kills the process and waits for its end.
func (a *Annex) Kill() {
	_ = a.command.Process.Kill() // it may have exited already
	<-a.exited
}

// lockedBuffer can be read while the process writes to it.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

// String returns the content.
func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
