// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command upstream runs Kubernetes' tests of its API server against annex: `make test-upstream`. Its arguments are names of suites, all by default. It prints
// the result of each test, and fails if a test fails that is not among the exceptions, or
// if an exception passes, fails for another reason or does not exist.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/test/process"
)

// suite is a set of tests and the server that they run against.
type suite struct {
	name   string
	covers string
	// run leaves logs and reports in dir.
	run func(ctx context.Context, dir string) ([]outcome, error)
}

var suites = []suite{
	{
		name:   "standalone",
		covers: "Kubernetes' end-to-end tests of api-machinery, against a standalone annex",
		run:    runStandalone,
	},
	{
		name:   "hosted",
		covers: "the same against a main cluster in which annex hosts every CRD",
		run:    runHosted,
	},
	{
		name:   "extensions",
		covers: "the integration tests of apiextensions-apiserver, with an annex in place of each server that they start",
		run:    runExtensions,
	},
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) error {
	// etcd logs in this process.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	selected, err := selectSuites(names)
	if err != nil {
		return err
	}
	root, err := process.ModuleRoot(ctx)
	if err != nil {
		return err
	}
	results := make([]result, len(selected))
	var running sync.WaitGroup
	// All at once: they mostly wait, and each has its own servers.
	for i, suite := range selected {
		dir := filepath.Join(root, "bin", "upstream", suite.name)
		if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
			return err
		}
		fmt.Printf("running %s: %s; logs are in %s\n", suite.name, suite.covers, dir)
		running.Go(func() {
			began := time.Now()
			outcomes, err := suite.run(ctx, dir)
			results[i] = result{suite: suite.name, outcomes: outcomes, err: err, took: time.Since(began)}
		})
	}
	running.Wait()
	return summarize(results)
}

func selectSuites(names []string) ([]suite, error) {
	if len(names) == 0 {
		return suites, nil
	}
	var selected []suite
	for _, name := range names {
		index := slices.IndexFunc(suites, func(suite suite) bool { return suite.name == name })
		if index < 0 {
			return nil, fmt.Errorf("there is no suite %q", name)
		}
		selected = append(selected, suites[index])
	}
	return selected, nil
}
