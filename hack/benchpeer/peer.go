// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// peer compares annex with kube-apiserver.
type peer struct {
	programs programs
	dir      string
	rounds   int
	duration time.Duration
	// only matches the names of the operations that are measured.
	only *regexp.Regexp
	// profiles is the directory for CPU profiles, empty if none are taken.
	profiles string
	// settle is the idle time before memory is read.
	settle time.Duration
	// memory is what all processes may use together, in bytes.
	memory int64
}

// Memory of a server in multiples of the JSON of all objects, at its peak, and without objects.
// A kube-apiserver with 50,000 objects of 2.8 kB was seen with 3.7 GB.
const (
	peerFactor, annexFactor = 26, 8
	// etcdFactor is for two etcds, whose pages are in memory, and both in old revisions.
	etcdFactor = 6
	idleMemory = 600 << 20
)

// estimate returns the memory in bytes that a case needs, with and without kube-apiserver.
func estimate(count, size int) (both, annexOnly int64) {
	json := int64(count) * int64(size)
	annexOnly = idleMemory + (annexFactor+etcdFactor/2)*json
	return annexOnly + idleMemory + (peerFactor+etcdFactor/2)*json, annexOnly
}

// run measures one case.
func (p *peer) run(ctx context.Context, count, size int) (c caseReport, err error) {
	c = caseReport{Objects: count, Bytes: size}
	both, annexOnly := estimate(count, size)
	const gib = 1 << 30
	if annexOnly > p.memory {
		c.Skipped = fmt.Sprintf("it needs about %.1f GiB of %.1f GiB", float64(annexOnly)/gib, float64(p.memory)/gib)
		return c, nil
	}
	servers, err := p.start(ctx, both <= p.memory)
	defer func() {
		for _, s := range servers {
			err = errors.Join(err, s.stop())
		}
		err = errors.Join(err, os.RemoveAll(p.dir))
	}()
	if err != nil {
		return c, err
	}
	if both > p.memory {
		c.Skipped = fmt.Sprintf("kube-apiserver, both need about %.1f GiB of %.1f GiB", float64(both)/gib, float64(p.memory)/gib)
	}
	err = p.measure(ctx, &c, servers)
	return c, err
}

// start starts the servers, each with an etcd of its own.
func (p *peer) start(ctx context.Context, withPeer bool) ([]*server, error) {
	starters := []func(string) (*server, error){func(dir string) (*server, error) { return startAnnex(ctx, p.programs, dir) }}
	if withPeer {
		starters = append(starters, func(dir string) (*server, error) { return startKubeAPIServer(ctx, p.programs, dir) })
	}
	var servers []*server
	for i, start := range starters {
		dir := filepath.Join(p.dir, fmt.Sprint(i))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return servers, err
		}
		started, err := start(dir)
		if err != nil {
			return servers, err
		}
		servers = append(servers, started)
	}
	return servers, nil
}

// measure measures everything on servers without objects.
func (p *peer) measure(ctx context.Context, c *caseReport, servers []*server) error {
	logf("measuring starts without objects ...")
	empty, err := p.restarts(ctx, servers)
	if err != nil {
		return err
	}
	logf("creating %d objects of %d bytes ...", c.Objects, c.Bytes)
	created, err := creation(c.Objects, c.Bytes, p.rounds).compare(ctx, p.rounds, servers)
	if err != nil {
		return err
	}
	c.Figures = append(c.Figures, created)
	if c.JSONBytes, err = jsonBytes(ctx, servers[0], c.Objects); err != nil {
		return err
	}
	for _, o := range operations(c.Objects, c.Bytes, p.duration) {
		if !p.only.MatchString(o.name) {
			continue
		}
		logf("measuring %s ...", o.name)
		f, err := o.compare(ctx, p.rounds, servers)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			f = figure{Name: o.name, Failed: err.Error()}
		}
		c.Figures = append(c.Figures, f)
		if err := p.profile(ctx, o, servers); err != nil {
			return err
		}
	}
	err = p.measureProcesses(ctx, c, servers, empty)
	return errors.Join(err, p.profile(ctx, moreCreation(c.Objects, c.Bytes), servers))
}

// profile writes the CPU profiles of an operation, if they were asked for.
func (p *peer) profile(ctx context.Context, o operation, servers []*server) error {
	if p.profiles == "" {
		return nil
	}
	return o.profile(ctx, p.profiles, servers)
}

// creation returns the operation that creates all objects in a number of rounds.
func creation(count, size, rounds int) operation {
	done := map[*server]int{}
	return operation{name: "create", per: "request", target: 2, tolerance: 0.03, prepare: func(_ context.Context, s *server) (round, error) {
		i := done[s]
		done[s]++
		return create(s, workers, count*i/rounds, count*(i+1)/rounds, size, nil), nil
	}}
}

// jsonBytes returns the size of an object in a list.
func jsonBytes(ctx context.Context, s *server, count int) (int, error) {
	received, err := s.client.send(ctx, request{path: collection, accept: asJSON})
	return int(received.bytes) / count, err
}

// measureProcesses measures the servers' memory and restarts with all objects. empty is what
// restarts returned without objects.
func (p *peer) measureProcesses(ctx context.Context, c *caseReport, servers []*server, empty map[string]start) error {
	peak := map[string]float64{}
	for _, s := range servers {
		usage, err := s.usage()
		if err != nil {
			return err
		}
		peak[s.name] = mebibytes(usage.PeakRSS)
	}
	logf("measuring restarts ...")
	loaded, err := p.restarts(ctx, servers)
	if err != nil {
		return err
	}
	rss, heap, listed, full := map[string]float64{}, map[string]float64{}, map[string]float64{}, map[string]float64{}
	for name, with := range loaded {
		rss[name] = (with.rss - empty[name].rss) / float64(c.Objects)
		heap[name] = (with.heap - empty[name].heap) / float64(c.Objects)
		listed[name], full[name] = with.listed, with.full
	}
	c.Figures = append(c.Figures,
		figure{Name: "kill -9, process start to the first list", Unit: "s", Measured: listed},
		figure{Name: "kill -9, process start to full watch caches", Unit: "s", Measured: full, Target: 4},
		figure{Name: "peak RSS of the reads and writes above", Unit: "MiB", Measured: peak},
		figure{Name: "RSS growth per object, after a restart", Unit: "B", Measured: rss, Target: 6},
		figure{Name: "live heap growth per object, after a restart", Unit: "B", Measured: heap},
	)
	return nil
}

// start is a start of a server: seconds until a list was answered and until the watch caches
// were full, and bytes of memory of the idle server after it.
type start struct{ listed, full, rss, heap float64 }

// restarts kills and starts the servers in several rounds, and returns medians.
func (p *peer) restarts(ctx context.Context, servers []*server) (map[string]start, error) {
	starts := map[string][]start{}
	for range p.rounds {
		round := map[string]start{}
		for _, s := range servers {
			listed, full, err := s.restart(ctx)
			if err != nil {
				return nil, err
			}
			round[s.name] = start{listed: listed.Seconds(), full: full.Seconds()}
		}
		memory, err := memoryOfIdle(ctx, servers, p.settle)
		if err != nil {
			return nil, err
		}
		for name, one := range round {
			one.rss, one.heap = memory[name].rss, memory[name].heap
			starts[name] = append(starts[name], one)
		}
	}
	medians := map[string]start{}
	for name, all := range starts {
		medians[name] = start{
			listed: medianOf(all, func(s start) float64 { return s.listed }), full: medianOf(all, func(s start) float64 { return s.full }),
			rss: medianOf(all, func(s start) float64 { return s.rss }), heap: medianOf(all, func(s start) float64 { return s.heap }),
		}
	}
	return medians, nil
}

// memoryOfIdle returns rss and heap of servers that were idle for some time after a garbage
// collection.
func memoryOfIdle(ctx context.Context, servers []*server, settle time.Duration) (map[string]start, error) {
	for _, s := range servers {
		if _, err := s.heap(ctx); err != nil {
			return nil, err
		}
	}
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	read := map[string]start{}
	for _, s := range servers {
		usage, err := s.usage()
		if err != nil {
			return nil, err
		}
		heap, err := s.heap(ctx)
		if err != nil {
			return nil, err
		}
		read[s.name] = start{rss: float64(usage.RSS), heap: float64(heap)}
	}
	return read, nil
}

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }
