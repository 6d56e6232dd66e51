// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures annex as a process, alone or beside kube-apiserver, and draws charts of
// the results. It prints figures beside their targets and asserts nothing, because the figures
// depend on the machine and its load.
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
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

func main() {
	// The main cluster runs etcd in this process, which logs.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	root := &cobra.Command{Use: "bench", Short: "Measure annex", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(newAnnexCommand(), newPeerCommand(), newMillionCommand(), newChartsCommand(), newDashboardsCommand())
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root.ExecuteContext(ctx)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// settings are the flags that measurements have.
type settings struct {
	json, command string
	settle        time.Duration
	// expired is the number of objects that expire.
	expired int
	// moved is the number of objects that move.
	moved int
}

func (set *settings) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&set.json, "json", "", "Also write the result to this file.")
	flags.StringVar(&set.command, "command", "", "The command that the result names, to measure again.")
	flags.DurationVar(&set.settle, "settle", 30*time.Second, "The idle time before memory is read.")
}

// session measures one case. It has a directory and processes, which end with it.
type session struct {
	*settings
	caseReport

	measure func(context.Context, *session) error
	// dir holds the data, bin the programs.
	dir, bin string
	ends     []func() error
}

// run measures cases with programs under bin/, and prints and saves the results.
func (set *settings) run(ctx context.Context, kind string, programs []string, cases ...*session) error {
	result, bin, err := newReport(ctx, kind, programs)
	if err != nil {
		return err
	}
	result.Command = set.command
	for _, s := range cases {
		logf("measuring %s ...", s.title())
		s.settings, s.bin = set, bin
		if err := s.run(ctx); err != nil {
			return fmt.Errorf("measure %s: %w", s.title(), err)
		}
		result.Cases = append(result.Cases, s.caseReport)
		if err := errors.Join(s.print(os.Stdout), result.save(set.json)); err != nil {
			return err
		}
	}
	return nil
}

// run measures the case, by default in a temporary directory.
func (s *session) run(ctx context.Context) (err error) {
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "annex-bench-"); err != nil {
			return fmt.Errorf("create a data directory: %w", err)
		}
		s.atEnd(func() error { return os.RemoveAll(s.dir) })
	}
	defer func() {
		for _, end := range slices.Backward(s.ends) {
			err = errors.Join(err, end())
		}
	}()
	return s.measure(ctx, s)
}

// atEnd calls end when the session ends, after what was added later.
func (s *session) atEnd(end func() error) { s.ends = append(s.ends, end) }

// program returns the path of a program.
func (s *session) program(name string) string { return filepath.Join(s.bin, name) }

// logf reports progress.
func logf(format string, values ...any) { fmt.Fprintf(os.Stderr, format+"\n", values...) }
