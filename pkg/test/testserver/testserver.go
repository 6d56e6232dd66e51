// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testserver runs annex inside a test process: the whole of `annex
// serve`, with its flags, on a free port and with a new data directory.
package testserver

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/spf13/pflag"

	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/annex-dev/annex/pkg/cmd/server"
	"github.com/annex-dev/annex/pkg/cmd/server/options"
)

const (
	// A start takes a second on an idle machine.
	startTimeout = 2 * time.Minute
	stopTimeout  = 2 * time.Minute
)

// starts limits how many start at a time. A start takes seconds of CPU time: all parallel tests together would
// reach startTimeout on a busy machine.
var starts = make(chan struct{}, 4)

// Server is a running annex.
type Server struct {
	// URL is the URL of the server.
	URL string
	// DataDir is its data directory. Another server can use it after Stop.
	DataDir string
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string
	// AnnexConfig authenticates as the administrator, without client-side throttling.
	AnnexConfig *restclient.Config

	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// Start starts annex on a fresh data directory, waits until it is ready, and
// stops it when the test ends. flags are flags of `annex serve`.
func Start(t testing.TB, flags ...string) *Server {
	t.Helper()
	return StartIn(t, t.TempDir(), flags...)
}

// StartIn starts annex on the given data directory.
func StartIn(t testing.TB, dataDir string, flags ...string) *Server {
	t.Helper()
	s, err := TryStartIn(t, dataDir, flags...)
	if err != nil {
		t.Fatalf("annex did not start: %v", err)
	}
	return s
}

// TryStartIn is StartIn for servers that may refuse to start.
func TryStartIn(t testing.TB, dataDir string, flags ...string) (*Server, error) {
	t.Helper()
	s, err := Launch(dataDir, flags...)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { s.Stop(t) })
	return s, nil
}

// StartWith is StartIn with options that have no flag.
func StartWith(t testing.TB, change func(*options.Options), dataDir string, flags ...string) *Server {
	t.Helper()
	s, err := launch(dataDir, change, flags...)
	if err != nil {
		t.Fatalf("annex did not start: %v", err)
	}
	t.Cleanup(func() { s.Stop(t) })
	return s
}

// Launch starts annex on the given data directory and waits until it is ready.
// It is for servers that outlive a test; call Shutdown.
func Launch(dataDir string, flags ...string) (*Server, error) {
	return launch(dataDir, func(*options.Options) {}, flags...)
}

func launch(dataDir string, change func(*options.Options), flags ...string) (*Server, error) {
	completed, err := completeOptions(change, append([]string{"--data-dir=" + dataDir, "--secure-port=0"}, flags...))
	if err != nil {
		return nil, err
	}
	starts <- struct{}{}
	defer func() { <-starts }()
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{DataDir: dataDir, cancel: cancel, done: make(chan struct{})}
	readyc := make(chan server.Ready, 1)
	go func() {
		defer close(s.done)
		s.err = server.Run(ctx, completed, func(ready server.Ready) { readyc <- ready })
	}()
	select {
	case ready := <-readyc:
		err = s.use(ready)
	case <-s.done:
		cancel()
		if s.err == nil {
			return nil, errors.New("it stopped before it was ready")
		}
		return nil, s.err
	case <-time.After(startTimeout):
		err = errors.New("it was not ready in time")
	}
	if err != nil {
		return nil, errors.Join(err, s.Shutdown())
	}
	return s, nil
}

func completeOptions(change func(*options.Options), args []string) (options.CompletedOptions, error) {
	o := options.New()
	o.Etcd.UnsafeNoFsync = true
	change(o)
	set := pflag.NewFlagSet("annex serve", pflag.ContinueOnError)
	sets := o.Flags()
	for _, named := range sets.FlagSets {
		set.AddFlagSet(named)
	}
	if err := set.Parse(args); err != nil {
		return options.CompletedOptions{}, err
	}
	completed, err := o.Complete()
	if err != nil {
		return options.CompletedOptions{}, err
	}
	return completed, completed.Validate()
}

func (s *Server) use(ready server.Ready) error {
	config, err := clientcmd.BuildConfigFromFlags("", ready.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	s.URL, s.Kubeconfig, s.AnnexConfig = ready.URL, ready.Kubeconfig, config
	return nil
}

// Stop stops annex as SIGTERM does, and waits. More calls do nothing.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if err := s.Shutdown(); err != nil {
		t.Error(err)
		// What it waits for, if it still does.
		_ = pprof.Lookup("goroutine").WriteTo(t.Output(), 1)
	}
}

// Shutdown is Stop for servers that outlive a test. It returns the error that
// annex stopped with, once.
func (s *Server) Shutdown() error {
	s.cancel()
	select {
	case <-s.done:
	case <-time.After(stopTimeout):
		return fmt.Errorf("annex did not stop in %s", stopTimeout)
	}
	if err := s.err; err != nil {
		s.err = nil
		return fmt.Errorf("annex stopped with an error: %w", err)
	}
	return nil
}
