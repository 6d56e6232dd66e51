// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures bin/annex as a process and prints the figures and their targets.
// It asserts nothing: the numbers depend on the machine and its load, so they are also
// compared with a floor that is measured in the same run. Arguments select measurements:
// size, start, few, many, place, slow, retention, aggregated, compression, rolling.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd"
	"github.com/annex-dev/annex/pkg/test/process"
)

const (
	// rounds is how often a start is measured; the median counts.
	rounds = 5
	// manyCRDs is the number of CRDs that a large installation has.
	manyCRDs = 500
	// settle is the idle time before a server's memory is read.
	settle = 30 * time.Second
	// limit bounds each measurement.
	limit = 2 * time.Minute
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run measures everything, or only what only names.
func run(only []string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	binary, err := process.Bin(ctx, "annex")
	if err != nil {
		return err
	}
	// The etcds of the floor and of the main cluster log in this process.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	dir, err := os.MkdirTemp("", "annex-bench-")
	if err != nil {
		return fmt.Errorf("create a data directory: %w", err)
	}
	defer os.RemoveAll(dir)

	b := &bench{binary: binary, dir: dir}
	for _, step := range []struct {
		name, what string
		do         func(context.Context) error
	}{
		{"size", "the size of the binary", b.binarySize},
		{"floor", "an embedded etcd alone, the floor of every start", b.floor},
		{"start", "starts on a fresh data directory", b.freshStarts},
		{"few", "starts after kill -9, and CRDs", b.fewCRDs},
		{"many", fmt.Sprintf("%d CRDs", manyCRDs), b.manyCRDs},
		{"place", fmt.Sprintf("%d resources on %d Stores", placed, placedOn), b.placement},
		{"slow", "a resource beside one on a slow Store", b.slowStore},
		{"retention", "a resource while objects of another are deleted", b.retention},
		{"aggregated", "annex behind a main cluster", b.aggregated},
		{"compression", "compression", b.compression},
		{"rolling", "a rolling restart behind a main cluster", b.rollingRestart},
	} {
		// Starts are compared with the floor, so that is always measured.
		if len(only) > 0 && step.name != "floor" && !slices.Contains(only, step.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "measuring %s ...\n", step.what)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("measure %s: %w", step.what, err)
		}
	}
	return b.print()
}

// figure is one row of the result.
type figure struct {
	name             string
	measured, target float64
	unit             string
	// ofStart compares the figure with the floor of starts.
	ofStart bool
}

type bench struct {
	binary, dir string
	etcd        time.Duration
	figures     []figure
}

func (b *bench) add(f figure) { b.figures = append(b.figures, f) }

func (b *bench) addStart(name string, took time.Duration) {
	b.add(figure{name: name, measured: took.Seconds(), target: 1, unit: "s", ofStart: true})
}

func (b *bench) print() error {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "MEASURED\tTARGET\tMEASURED/TARGET\tMEASURED/ETCD ALONE\t  FIGURE")
	for _, f := range b.figures {
		target, ratio, floor := "-", "-", "-"
		if f.target > 0 {
			target, ratio = fmt.Sprintf("%.3g %s", f.target, f.unit), fmt.Sprintf("%.2f", f.measured/f.target)
		}
		if f.ofStart {
			floor = fmt.Sprintf("%.1f", f.measured/b.etcd.Seconds())
		}
		fmt.Fprintf(table, "%.3g %s\t%s\t%s\t%s\t  %s\n", f.measured, f.unit, target, ratio, floor, f.name)
	}
	return table.Flush()
}

func (b *bench) binarySize(context.Context) error {
	info, err := os.Stat(b.binary)
	if err != nil {
		return err
	}
	b.add(figure{name: "stripped binary", measured: float64(info.Size()) / 1e6, target: 100, unit: "MB"})
	return nil
}

// floor measures the start of the embedded etcd, without which annex cannot start.
func (b *bench) floor(ctx context.Context) error {
	var starts []time.Duration
	for i := range rounds {
		dir := filepath.Join(b.dir, fmt.Sprint("etcd-", i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		began := time.Now()
		etcd, err := embeddedetcd.Start(ctx, embeddedetcd.Config{Dir: filepath.Join(dir, "data"), SocketPath: filepath.Join(dir, "socket")})
		if err != nil {
			return err
		}
		starts = append(starts, time.Since(began))
		if err := etcd.Close(); err != nil {
			return err
		}
	}
	b.etcd = median(starts)
	b.add(figure{name: "embedded etcd alone, start to ready on a fresh data dir", measured: b.etcd.Seconds(), unit: "s", ofStart: true})
	return nil
}

// start starts annex and returns how long it took until it was ready.
func (b *bench) start(ctx context.Context, dataDir string, flags ...string) (*process.Annex, time.Duration, error) {
	annex, err := process.Start(b.binary, dataDir, flags...)
	if err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := annex.WaitReady(ctx); err != nil {
		annex.Kill()
		return nil, 0, err
	}
	return annex, time.Since(annex.Started()), nil
}

// restarts kills and starts annex several times, and leaves it running.
func (b *bench) restarts(ctx context.Context, annex *process.Annex, dataDir string) (*process.Annex, time.Duration, error) {
	var starts []time.Duration
	for range rounds {
		annex.Kill()
		var took time.Duration
		var err error
		if annex, took, err = b.start(ctx, dataDir); err != nil {
			return nil, 0, err
		}
		starts = append(starts, took)
	}
	return annex, median(starts), nil
}

func (b *bench) freshStarts(ctx context.Context) error {
	var starts []time.Duration
	for i := range rounds {
		annex, took, err := b.start(ctx, filepath.Join(b.dir, fmt.Sprint("fresh-", i)))
		if err != nil {
			return err
		}
		starts = append(starts, took)
		if i == rounds-1 {
			err = b.addMemory(ctx, annex, "idle RSS, fresh", 150)
		}
		annex.Kill()
		if err != nil {
			return err
		}
	}
	b.addStart("process start to ready, fresh data dir", median(starts))
	return nil
}

func (b *bench) addMemory(ctx context.Context, annex *process.Annex, name string, target float64) error {
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return ctx.Err()
	}
	usage, err := process.UsageOf(annex.PID())
	if err != nil {
		return err
	}
	b.add(figure{name: name, measured: float64(usage.RSS) / (1 << 20), target: target, unit: "MiB"})
	return nil
}

func median(durations []time.Duration) time.Duration {
	slices.Sort(durations)
	return durations[len(durations)/2]
}
