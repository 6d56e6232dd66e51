// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command testrun runs the levels of tests that its arguments name, prints the output of
// failed tests and a summary. `make test` calls it; the levels are in levels.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
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
