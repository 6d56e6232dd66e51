// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// operation is what is measured on both servers in turn.
type operation struct {
	name string
	// target is the ratio kube-apiserver/annex to reach, of the CPU time if onCPU is set.
	target float64
	onCPU  bool
	// per is the unit that times are divided by: a request, or the delivery of an event.
	per string
	// tolerance is how much the sizes of responses may differ, as a part of them. The servers'
	// gzip writers differ.
	tolerance float64
	// prepare does what is not measured, and returns what is.
	prepare func(ctx context.Context, s *server) (round, error)
}

// round is one measurement on one server.
type round struct {
	// run does the work and returns its number of units and the bytes received.
	run func(ctx context.Context) (units, bytes int64, err error)
	// close releases what prepare created; nil if that is nothing.
	close func()
}

// sample is the result of a round, per unit.
type sample struct{ wall, cpu, bytes float64 }

// sampleOf measures one round.
func (o operation) sampleOf(ctx context.Context, s *server) (taken sample, err error) {
	prepared, err := o.prepare(ctx, s)
	if err != nil {
		return sample{}, err
	}
	if prepared.close != nil {
		defer prepared.close()
	}
	before, err := s.usage()
	if err != nil {
		return sample{}, err
	}
	began := time.Now()
	units, bytes, err := prepared.run(ctx)
	took := time.Since(began)
	if err != nil {
		return sample{}, err
	}
	after, err := s.usage()
	if err != nil {
		return sample{}, err
	}
	n := float64(max(units, 1))
	return sample{wall: milliseconds(took) / n, cpu: milliseconds(after.CPU-before.CPU) / n, bytes: float64(bytes) / n}, nil
}

// compare measures an operation on the servers in turn. The first one alternates, so that what
// else runs on the machine affects both.
func (o operation) compare(ctx context.Context, rounds int, servers []*server) (figure, error) {
	samples := make([][]sample, len(servers))
	for i := range rounds {
		for j := range servers {
			j = (i + j) % len(servers)
			taken, err := o.sampleOf(ctx, servers[j])
			if err != nil {
				return figure{}, fmt.Errorf("%s of %s: %w", o.name, servers[j].name, err)
			}
			samples[j] = append(samples[j], taken)
		}
	}
	f := figure{Name: o.name, Unit: "ms", Per: o.per, Target: o.target, TargetOnCPU: o.onCPU, Measured: map[string]float64{}, CPU: map[string]float64{}}
	sizes := make([]float64, len(servers))
	for j, s := range servers {
		f.Measured[s.name] = medianOf(samples[j], func(s sample) float64 { return s.wall })
		f.CPU[s.name] = medianOf(samples[j], func(s sample) float64 { return s.cpu })
		sizes[j] = medianOf(samples[j], func(s sample) float64 { return s.bytes })
	}
	if smallest, largest := slices.Min(sizes), slices.Max(sizes); largest-smallest > o.tolerance*largest {
		return figure{}, fmt.Errorf("%s: the servers' responses differ: %.0f and %.0f bytes", o.name, smallest, largest)
	}
	return f, nil
}

// medianOf returns the median of a property of all samples.
func medianOf[T any](samples []T, property func(T) float64) float64 {
	values := make([]float64, 0, len(samples))
	for _, s := range samples {
		values = append(values, property(s))
	}
	return quantile(values, 0.5)
}

// quantile returns the value below which a part of the values are, interpolated; 0 of none.
func quantile(values []float64, part float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	position := part * float64(len(sorted)-1)
	below := int(position)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (position-float64(below))*(sorted[above]-sorted[below])
}

// repeat returns a round of requests from concurrent workers until some time has passed. A
// worker sends at least one.
func repeat(workers int, duration time.Duration, call func(ctx context.Context, worker int) (response, error)) round {
	return round{run: func(ctx context.Context) (int64, int64, error) {
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

// inParallel runs workers, and counts the responses that they add.
func inParallel(workers int, work func(worker int, add func(response)) error) (units, size int64, err error) {
	var count, total atomic.Int64
	errs := make([]error, workers)
	var running sync.WaitGroup
	for worker := range workers {
		running.Go(func() {
			errs[worker] = work(worker, func(r response) {
				count.Add(1)
				total.Add(r.bytes)
			})
		})
	}
	running.Wait()
	return count.Load(), total.Load(), errors.Join(errs...)
}

// create returns a round that creates the objects from first to last, without last, and reports
// progress to stderr.
func create(s *server, workers, first, last, size int, progress func(created int)) round {
	return round{run: func(ctx context.Context) (int64, int64, error) {
		var next atomic.Int64
		next.Store(int64(first))
		return inParallel(workers, func(_ int, add func(response)) error {
			for {
				i := int(next.Add(1)) - 1
				if i >= last {
					return nil
				}
				body, err := newObject(i, size)
				if err != nil {
					return err
				}
				received, err := s.client.send(ctx, request{method: "POST", path: parentOf(i), contentType: asJSON, body: body})
				if err != nil {
					return err
				}
				add(received)
				if progress != nil {
					progress(i + 1)
				}
			}
		})
	}}
}

// logf reports progress.
func logf(format string, values ...any) { fmt.Fprintf(os.Stderr, format+"\n", values...) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
