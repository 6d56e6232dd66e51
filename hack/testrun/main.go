// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command testrun runs levels of tests, and prints the output of failed tests and a summary:
//
//	testrun unit race integration e2e    run these levels; make test calls it
//	testrun cluster                      make test-cluster
//	testrun summary                      print the last results of all levels and the slowest tests
//	testrun long 10m                     run the random tests; make test-long
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 1 && args[0] == "summary":
		results, err := loadResults()
		if err != nil {
			return err
		}
		printSummary(os.Stdout, results)
		return nil
	case len(args) == 2 && args[0] == "long":
		return runLong(ctx, args[1])
	default:
		return runLevels(ctx, args)
	}
}

func runLevels(ctx context.Context, names []string) error {
	selected, err := selectLevels(names)
	if err != nil {
		return err
	}
	var results []*result
	// One after another: two on two cores starve the servers that they start.
	for _, level := range selected {
		fmt.Printf("\n=== %s: %s\n", level.name, level.covers)
		results = append(results, runLevel(ctx, level))
	}
	printSummary(os.Stdout, results)
	if err := saveResults(results); err != nil {
		return err
	}
	if slices.ContainsFunc(results, (*result).failed) {
		return errors.New("tests failed")
	}
	return ctx.Err()
}

func runLevel(ctx context.Context, level level) *result {
	result := newResult(level.name)
	began := time.Now()
	defer func() { result.Elapsed = time.Since(began) }()

	if level.skip != nil {
		result.SkipReason = level.skip(ctx)
	}
	if result.SkipReason != "" {
		fmt.Printf("skipped: %s\n", result.SkipReason)
		return result
	}
	packages, err := level.packages(ctx)
	if err != nil {
		result.fail(err)
		return result
	}
	// make lint runs vet.
	arguments := append([]string{"test", "-json", "-vet=off"}, level.flags...)
	command := interruptible(ctx, "go", append(arguments, packages...)...)
	command.Env = append(os.Environ(), level.env...)
	output, err := command.StdoutPipe()
	if err != nil {
		result.fail(fmt.Errorf("read the output of go test: %w", err))
		return result
	}
	if err := command.Start(); err != nil {
		result.fail(fmt.Errorf("start go test: %w", err))
		return result
	}
	readErr := result.read(output, os.Stdout)
	if err := errors.Join(command.Wait(), readErr); err != nil {
		result.fail(fmt.Errorf("go %s: %w", strings.Join(arguments, " "), err))
	}
	return result
}

// interruptible returns a command that gets the time to end its children when ctx ends.
func interruptible(ctx context.Context, name string, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, name, arguments...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 30 * time.Second
	command.Stderr = os.Stderr
	return command
}
