// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command benchpeer compares annex with a real kube-apiserver that serves the same CRD on the same
// machine (`benchpeer peer`), or measures one annex with very many objects (`benchpeer million`).
// It asserts nothing. Each server is a process with an etcd of its own, and only the server's
// CPU time is counted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/annex-dev/annex/pkg/test/process"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run runs the benchmark that the first argument names.
func run(arguments []string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if len(arguments) > 0 {
		switch arguments[0] {
		case "peer":
			return runPeer(ctx, arguments[1:])
		case "million":
			return runMillion(ctx, arguments[1:])
		}
	}
	return errors.New("run `benchpeer peer` or `benchpeer million`, see their --help")
}

// runPeer compares the servers in all cases.
func runPeer(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("peer", flag.ContinueOnError)
	counts := flags.String("counts", "10000", "Numbers of objects, separated by commas.")
	sizes := flags.String("sizes", "2500", "Sizes of an object in bytes of JSON, separated by commas.")
	rounds := flags.Int("rounds", 5, "How often each operation is measured on each server; the median counts.")
	duration := flags.Duration("duration", time.Second, "How long requests are sent in each round.")
	settle := flags.Duration("settle", 30*time.Second, "The idle time before memory is read.")
	limit := flags.Int64("memory", 16, "Memory in GiB that all processes may use. Servers that would exceed it are skipped.")
	only := flags.String("only", "", "Measure only operations whose name matches this regular expression, besides creation, restart and memory.")
	output := flags.String("json", "", "Also write the result to this file.")
	profiles := flags.String("profiles", "", "Also write CPU profiles of all operations to this directory.")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	numbers, err := numbersOf(*counts)
	if err != nil {
		return fmt.Errorf("read --counts: %w", err)
	}
	bytes, err := numbersOf(*sizes)
	if err != nil {
		return fmt.Errorf("read --sizes: %w", err)
	}
	selected, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("read --only: %w", err)
	}
	available, err := memoryOf("MemAvailable:")
	if err != nil {
		return err
	}
	p := &peer{rounds: *rounds, duration: *duration, settle: *settle, only: selected, profiles: *profiles, memory: min(*limit<<30, available)}
	if p.programs, err = findPrograms(ctx, "kube-apiserver"); err != nil {
		return err
	}
	result, err := newReport(ctx, "peer", p.programs)
	if err != nil {
		return err
	}
	for _, size := range bytes {
		for _, count := range numbers {
			if p.dir, err = os.MkdirTemp("", "annex-bench-"); err != nil {
				return fmt.Errorf("create a data directory: %w", err)
			}
			measured, err := p.run(ctx, count, size)
			if err != nil {
				return fmt.Errorf("measure %d objects of %d bytes: %w", count, size, err)
			}
			result.Cases = append(result.Cases, measured)
			if err := errors.Join(measured.print(os.Stdout), result.save(*output)); err != nil {
				return err
			}
		}
	}
	return nil
}

// numbersOf parses positive numbers.
func numbersOf(list string) ([]int, error) {
	var numbers []int
	for text := range strings.SplitSeq(list, ",") {
		number, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		if number < 1 {
			return nil, fmt.Errorf("%d is not positive", number)
		}
		numbers = append(numbers, number)
	}
	return numbers, nil
}

// findPrograms returns the programs under bin/.
func findPrograms(ctx context.Context, others ...string) (programs, error) {
	annex, err := process.Bin(ctx, "annex")
	if err != nil {
		return programs{}, err
	}
	bin := filepath.Dir(annex)
	found := programs{annex: annex, etcd: filepath.Join(bin, "etcd")}
	for _, name := range append(others, "etcd") {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return programs{}, fmt.Errorf("run `make bin/%s` first: %w", name, err)
		}
		if name == "kube-apiserver" {
			found.kubeAPIServer = filepath.Join(bin, name)
		}
	}
	return found, nil
}
