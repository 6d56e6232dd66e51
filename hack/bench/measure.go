// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
)

// operation is measured on two servers, or in two states of one server, in turn.
type operation struct {
	name string
	// target is the ratio of the servers' figures to reach, of the CPU time if onCPU is set.
	target float64
	onCPU  bool
	// per is the unit that times are divided by: a request, or the delivery of an event.
	per string
	// quantile of the times of all requests is measured, instead of the mean time per unit.
	quantile float64
	// tolerance is the largest difference between the sizes of the servers' responses, as a part of
	// them; 0 is no limit. The gzip writers differ.
	tolerance float64
	// prepare does what is not measured, and returns what is.
	prepare func(ctx context.Context, s *server) (round, error)
}

// round is one measurement on one server.
type round struct {
	// run does the work.
	run func(ctx context.Context) (work, error)
	// once is set if run uses up what prepare created.
	once bool
	// close releases what prepare created, unless it is nil.
	close func() error
}

// work sums up a round: units, bytes received, and the milliseconds of each request.
type work struct {
	units, bytes int64
	took         []float64
}

// values are repeated measurements by name and server.
type values map[string]map[string][]float64

func (v values) add(name string, s *server, measured ...float64) {
	if v[name] == nil {
		v[name] = map[string][]float64{}
	}
	v[name][s.name] = append(v[name][s.name], measured...)
}

// quantiles returns a quantile of each server's values.
func (v values) quantiles(name string, part float64) map[string]float64 {
	all := map[string]float64{}
	for server, measured := range v[name] {
		all[server] = quantile(measured, part)
	}
	return all
}

func (v values) medians(name string) map[string]float64 { return v.quantiles(name, 0.5) }

// quantile returns the value below which a part of the values are, interpolated; 0 of none.
func quantile(values []float64, part float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	below, rest := math.Modf(part * float64(len(sorted)-1))
	at, above := int(below), min(int(below)+1, len(sorted)-1)
	return sorted[at] + rest*(sorted[above]-sorted[at])
}

// measure measures one round: times and CPU time in milliseconds, and bytes, per unit.
func (o operation) measure(ctx context.Context, s *server, into values) (err error) {
	prepared, err := o.prepare(ctx, s)
	if err != nil {
		return err
	}
	if prepared.close != nil {
		defer func() { err = errors.Join(err, prepared.close()) }()
	}
	before, err := s.usage()
	if err != nil {
		return err
	}
	began := time.Now()
	done, err := prepared.run(ctx)
	wall := time.Since(began)
	if err != nil {
		return err
	}
	after, err := s.usage()
	if err != nil {
		return err
	}
	units := float64(max(done.units, 1))
	into.add("wall", s, milliseconds(wall)/units)
	into.add("cpu", s, milliseconds(after.CPU-before.CPU)/units)
	into.add("bytes", s, float64(done.bytes)/units)
	into.add("took", s, done.took...)
	return nil
}

// compare measures an operation on the servers in turn. The first one alternates, so that what
// else runs on the machine affects both.
func (o operation) compare(ctx context.Context, rounds int, servers []*server) (figure, error) {
	measured := values{}
	for i := range rounds {
		for j := range servers {
			s := servers[(i+j)%len(servers)]
			if err := o.measure(ctx, s, measured); err != nil {
				return figure{}, fmt.Errorf("%s of %s: %w", o.name, s.name, err)
			}
		}
	}
	f := figure{Name: o.name, Unit: "ms", Per: o.per, Target: o.target, TargetOnCPU: o.onCPU, Measured: measured.medians("wall"), CPU: measured.medians("cpu")}
	if o.quantile > 0 {
		f.Measured = measured.quantiles("took", o.quantile)
	}
	sizes := slices.Sorted(maps.Values(measured.medians("bytes")))
	if smallest, largest := sizes[0], sizes[len(sizes)-1]; o.tolerance > 0 && largest-smallest > o.tolerance*largest {
		return figure{}, fmt.Errorf("%s: the servers' responses differ: %.0f and %.0f bytes", o.name, smallest, largest)
	}
	return f, nil
}

// profileSeconds is the duration of a CPU profile.
const profileSeconds = 6

// notInNames matches what the names of profiles do not have.
var notInNames = regexp.MustCompile(`[^a-zA-Z0-9]`)

// profile repeats an operation on each server until its CPU profile is in the directory.
func (o operation) profile(ctx context.Context, directory string, servers []*server) error {
	for _, s := range servers {
		prepared, err := o.prepare(ctx, s)
		if err != nil {
			return err
		}
		taken := make(chan error, 1)
		go func() { taken <- s.profile(ctx, directory, o.name) }()
		for ended := false; !ended && err == nil; {
			_, err = prepared.run(ctx)
			if ended = len(taken) > 0; prepared.once && !ended && err == nil {
				prepared, err = o.prepare(ctx, s)
			}
		}
		err = errors.Join(err, <-taken)
		if prepared.close != nil {
			err = errors.Join(err, prepared.close())
		}
		if err != nil {
			return fmt.Errorf("profile %s of %s: %w", o.name, s.name, err)
		}
	}
	return nil
}

// profile writes a CPU profile of the server to a directory.
func (s *server) profile(ctx context.Context, directory, name string) error {
	received, err := s.client.send(ctx, request{path: fmt.Sprint("/debug/pprof/profile?seconds=", profileSeconds), keep: true})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, notInNames.ReplaceAllString(name, "-")+"."+s.name+".pprof"), received.body, 0o600)
}

// repeat returns a round of requests from concurrent workers until some time has passed. A
// worker calls at least once.
func repeat(workers int, duration time.Duration, call func(ctx context.Context, worker int) (response, error)) round {
	return round{run: func(ctx context.Context) (work, error) {
		deadline := time.Now().Add(duration)
		return inParallel(workers, func(worker int, add func(response)) error {
			for first := true; first || time.Now().Before(deadline); first = false {
				received, err := call(ctx, worker)
				if err != nil {
					return err
				}
				add(received)
			}
			return nil
		})
	}}
}

// inParallel runs workers, and sums up the responses that they add.
func inParallel(workers int, run func(worker int, add func(response)) error) (work, error) {
	parts := make([]work, workers)
	var running errgroup.Group
	for worker := range workers {
		running.Go(func() error {
			return run(worker, func(r response) {
				part := &parts[worker]
				part.units++
				part.bytes += r.bytes
				part.took = append(part.took, milliseconds(r.took))
			})
		})
	}
	err := running.Wait()
	var all work
	for _, part := range parts {
		all.units += part.units
		all.bytes += part.bytes
		all.took = append(all.took, part.took...)
	}
	return all, err
}

// countUp calls do for the numbers from first to last, without last, from concurrent workers.
func countUp(workers, first, last int, do func(i int) (response, error)) (work, error) {
	var next atomic.Int64
	next.Store(int64(first))
	return inParallel(workers, func(_ int, add func(response)) error {
		for {
			i := int(next.Add(1)) - 1
			if i >= last {
				return nil
			}
			received, err := do(i)
			if err != nil {
				return err
			}
			add(received)
		}
	})
}

// waitLimit bounds each wait for a server, such as for full watch caches.
const waitLimit = 15 * time.Minute

// since calls do until it succeeds, and returns the time since began.
func since(ctx context.Context, began time.Time, interval time.Duration, what string, do func() error) (time.Duration, error) {
	var last error
	err := wait.PollUntilContextTimeout(ctx, interval, waitLimit, true, func(context.Context) (bool, error) {
		last = do()
		return last == nil, nil
	})
	if err != nil {
		return 0, fmt.Errorf("wait for %s: %w, last error: %w", what, err, last)
	}
	return time.Since(began), nil
}

// idle waits until servers that get no requests are idle.
func idle(ctx context.Context, settle time.Duration) error {
	select {
	case <-time.After(settle):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
