// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command testrun runs the levels of tests that its arguments name, prints the output of
// failed tests and a summary. `make test` calls it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(names []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	selected, err := selectLevels(names)
	if err != nil {
		return err
	}
	var results []*result
	failed := false
	for _, level := range selected {
		fmt.Printf("\n=== %s: %s\n", level.name, level.covers)
		result := runLevel(ctx, level)
		results = append(results, result)
		failed = failed || result.failed()
	}
	printSummary(results)
	if failed {
		return errors.New("tests failed")
	}
	return ctx.Err()
}

func runLevel(ctx context.Context, level level) *result {
	result := newResult(level.name)
	start := time.Now()
	defer func() { result.elapsed = time.Since(start) }()

	if reason := level.skip(ctx); reason != "" {
		result.skipReason = reason
		fmt.Printf("skipped: %s\n", reason)
		return result
	}
	packages, err := level.packages(ctx)
	if err != nil {
		result.err = err
		fmt.Println(err)
		return result
	}
	arguments := append(append([]string{"test", "-json"}, level.flags...), packages...)
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 30 * time.Second
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		result.err = fmt.Errorf("read the output of go test: %w", err)
		return result
	}
	if err := command.Start(); err != nil {
		result.err = fmt.Errorf("start go test: %w", err)
		return result
	}
	readErr := result.read(output, os.Stdout)
	if err := errors.Join(command.Wait(), readErr); err != nil {
		result.err = fmt.Errorf("go %s: %w", strings.Join(arguments[:len(arguments)-len(packages)], " "), err)
	}
	return result
}

const module = "github.com/annex-dev/annex"

// level is one kind of tests.
type level struct {
	name   string
	covers string
	flags  []string
	// packages lists what go test is called with.
	packages func(ctx context.Context) ([]string, error)
	// skip returns why the level cannot run here, or nothing.
	skip func(ctx context.Context) string
}

// levels are in the order in which they are worth waiting for.
var levels = []level{
	{
		name:     "unit",
		covers:   "each package, and the conventions",
		flags:    []string{"-timeout=10m"},
		packages: unitPackages,
		skip:     never,
	},
	{
		name:   "race",
		covers: "the packages with the most concurrency, under the race detector",
		flags:  []string{"-race", "-timeout=10m"},
		// Few: each dependency is compiled once more for this.
		packages: fixed("pkg/aggregated/controller/...", "pkg/controller/...", "pkg/standalone/controller/...", "pkg/datadir", "pkg/leader", "pkg/pki", "pkg/serving", "pkg/storage/embeddedetcd", "pkg/storage/usage"),
		skip:     needCompiler,
	},
	{
		name:     "integration",
		covers:   "whole servers inside the test process",
		flags:    []string{"-timeout=15m"},
		packages: fixed("pkg/test/integration/..."),
		skip:     never,
	},
	{
		name:     "e2e",
		covers:   "bin/annex as a process, used with kubectl, with the CRDs of other projects and with an operator on controller-runtime",
		flags:    []string{"-tags=e2e", "-timeout=20m"},
		packages: fixed("pkg/test/e2e/..."),
		skip:     never,
	},
	{
		name:   "cluster",
		covers: "annex behind a real kube-apiserver and kube-controller-manager",
		// Each package runs a cluster of its own, which takes half a gigabyte.
		flags:    []string{"-tags=cluster", "-p=2", "-timeout=20m"},
		packages: fixed("pkg/test/cluster/..."),
		skip:     never,
	},
}

func selectLevels(names []string) ([]level, error) {
	var selected []level
	for _, name := range names {
		index := slices.IndexFunc(levels, func(level level) bool { return level.name == name })
		if index < 0 {
			return nil, fmt.Errorf("there is no level of tests %q", name)
		}
		selected = append(selected, levels[index])
	}
	if len(selected) == 0 {
		return nil, errors.New("name the levels of tests to run")
	}
	return selected, nil
}

func fixed(paths ...string) func(context.Context) ([]string, error) {
	packages := make([]string, 0, len(paths))
	for _, path := range paths {
		packages = append(packages, module+"/"+path)
	}
	return func(context.Context) ([]string, error) { return packages, nil }
}

// unitPackages are all packages that no other level runs.
func unitPackages(ctx context.Context) ([]string, error) {
	output, err := exec.CommandContext(ctx, "go", "list", module+"/...").Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages of the module: %w", err)
	}
	return slices.DeleteFunc(strings.Fields(string(output)), func(path string) bool {
		return slices.ContainsFunc([]string{"integration/", "e2e/", "cluster/"}, func(level string) bool {
			return strings.HasPrefix(path+"/", module+"/pkg/test/"+level)
		}) || strings.HasPrefix(path, module+"/pkg/generated/")
	}), nil
}

func never(context.Context) string { return "" }

// needCompiler reports a machine without a C compiler: the race detector is
// linked with cgo.
func needCompiler(ctx context.Context) string {
	output, err := exec.CommandContext(ctx, "go", "env", "CGO_ENABLED", "CC").Output()
	if err != nil {
		return fmt.Sprintf("go env: %v", err)
	}
	settings := strings.Fields(string(output))
	if len(settings) < 2 || settings[0] != "1" {
		return "the race detector needs cgo, which is off"
	}
	if _, err := exec.LookPath(settings[1]); err != nil {
		return fmt.Sprintf("the race detector needs a C compiler: %v", err)
	}
	return ""
}
