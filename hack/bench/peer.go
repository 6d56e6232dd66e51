// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/spf13/cobra"
)

// peer compares annex with kube-apiserver.
type peer struct {
	rounds   int
	duration time.Duration
	// only matches the names of the operations that are measured.
	only *regexp.Regexp
	// memory is the limit in bytes of all processes together.
	memory int64
	// profiles is the directory for CPU profiles, empty if none are taken.
	profiles string
}

func newPeerCommand() *cobra.Command {
	command := &cobra.Command{Use: "peer", Args: cobra.NoArgs, Short: "Compare annex with a kube-apiserver that serves the same CRD",
		Long: "Compare annex with a kube-apiserver that serves the same CRD. Each has an etcd of its own, and only the CPU time of the API server is counted."}
	var set settings
	var p peer
	set.addFlags(command)
	flags := command.Flags()
	counts := flags.IntSlice("counts", []int{10000}, "Numbers of objects.")
	sizes := flags.IntSlice("sizes", []int{2500}, "Sizes of an object in bytes of JSON.")
	flags.IntVar(&p.rounds, "rounds", 5, "How often each operation is measured on each server; the median counts.")
	flags.DurationVar(&p.duration, "duration", time.Second, "How long requests are sent in each round.")
	limit := flags.Int64("memory", 16, "Memory in GiB that all processes may use. Servers that would exceed it are skipped.")
	flags.StringVar(&p.profiles, "profiles", "", "Also write CPU profiles of all operations to this directory.")
	only := flags.String("only", "", "Measure only operations whose name matches this regular expression, besides creation, restart and memory.")
	command.RunE = func(command *cobra.Command, _ []string) error {
		var err error
		if p.only, err = regexp.Compile(*only); err != nil {
			return fmt.Errorf("read --only: %w", err)
		}
		machine, err := readMachine()
		if err != nil {
			return err
		}
		p.memory = min(*limit<<30, machine.available)
		var cases []*session
		for _, size := range *sizes {
			for _, count := range *counts {
				if size < 1 || count < 1 {
					return fmt.Errorf("measure %d objects of %d bytes: both must be positive", count, size)
				}
				cases = append(cases, &session{caseReport: caseReport{Servers: []string{peerName, annexName}, Objects: count, Bytes: size}, measure: p.measure})
			}
		}
		return set.run(command.Context(), "peer", []string{annexName, "etcd", peerName}, cases...)
	}
	return command
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

// measure starts the servers that there is memory for, and measures them.
func (p *peer) measure(ctx context.Context, s *session) error {
	both, annexOnly := estimate(s.Objects, s.Bytes)
	if annexOnly > p.memory {
		s.Skipped = fmt.Sprintf("it needs about %.1f GiB of %.1f GiB", gibibytes(annexOnly), gibibytes(p.memory))
		return nil
	}
	annex, err := s.startAnnexOnEtcd(ctx)
	if err != nil {
		return fmt.Errorf("start annex: %w", err)
	}
	servers := []*server{annex}
	if both > p.memory {
		s.Skipped = fmt.Sprintf("kube-apiserver, both need about %.1f GiB of %.1f GiB", gibibytes(both), gibibytes(p.memory))
	} else {
		started, err := s.startKubeAPIServer(ctx)
		if err != nil {
			return fmt.Errorf("start kube-apiserver: %w", err)
		}
		servers = append(servers, started)
	}
	return p.measureServers(ctx, s, servers)
}

// measureServers measures everything on servers without objects.
func (p *peer) measureServers(ctx context.Context, c *session, servers []*server) error {
	logf("measuring starts without objects ...")
	empty, err := p.restarts(ctx, servers, c.settle)
	if err != nil {
		return err
	}
	logf("creating %d objects of %d bytes ...", c.Objects, c.Bytes)
	creation := creation(c.Objects, c.Bytes, p.rounds)
	created, err := creation.compare(ctx, p.rounds, servers)
	if err != nil {
		return err
	}
	c.Figures = append(c.Figures, created)
	if err := c.addGrowth(servers, empty); err != nil {
		return err
	}
	listed, err := servers[0].client.send(ctx, request{path: servers[0].objects.collection(), accept: asJSON})
	if err != nil {
		return err
	}
	c.JSONBytes = int(listed.bytes) / c.Objects
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
	if err := p.measureProcesses(ctx, c, servers, empty); err != nil {
		return err
	}
	return p.profile(ctx, creation, servers)
}

// addGrowth adds the memory of the servers right after they have created all objects.
func (c *session) addGrowth(servers []*server, empty values) error {
	created := values{}
	for _, s := range servers {
		usage, err := s.usage()
		if err != nil {
			return err
		}
		created.add("rss", s, float64(usage.RSS))
	}
	c.Figures = append(c.Figures, figure{Name: "RSS growth per object, after the creations", Unit: "B", Measured: c.growth(created, empty, "rss"), Target: 6})
	return nil
}

// growth returns the growth of a value for each object.
func (c *session) growth(with, without values, name string) map[string]float64 {
	growth, before := with.medians(name), without.medians(name)
	for server := range growth {
		growth[server] = (growth[server] - before[server]) / float64(c.Objects)
	}
	return growth
}

// profile writes the CPU profiles of an operation, if they were asked for.
func (p *peer) profile(ctx context.Context, o operation, servers []*server) error {
	if p.profiles == "" {
		return nil
	}
	return o.profile(ctx, p.profiles, servers)
}

// creation returns the operation that creates all objects in a number of rounds, and further ones
// after them.
func creation(count, size, rounds int) operation {
	done := map[*server]int{}
	return operation{name: "create", per: "request", target: 3, onCPU: true, tolerance: 0.03, prepare: func(_ context.Context, s *server) (round, error) {
		return round{run: func(ctx context.Context) (work, error) {
			i := done[s]
			done[s]++
			return countUp(workers, count*i/rounds, count*(i+1)/rounds, func(i int) (response, error) { return s.create(ctx, s.objects, i, size) })
		}}, nil
	}}
}

// measureProcesses measures memory and restarts of the servers with all objects. empty has the
// restarts without objects.
func (p *peer) measureProcesses(ctx context.Context, c *session, servers []*server, empty values) error {
	peak := map[string]float64{}
	for _, s := range servers {
		usage, err := s.usage()
		if err != nil {
			return err
		}
		peak[s.name] = mebibytes(usage.PeakRSS)
	}
	logf("measuring restarts ...")
	loaded, err := p.restarts(ctx, servers, c.settle)
	if err != nil {
		return err
	}
	c.Figures = append(c.Figures,
		figure{Name: "kill -9, process start to the first list", Unit: "s", Measured: loaded.medians("listed")},
		figure{Name: "kill -9, process start to full watch caches", Unit: "s", Measured: loaded.medians("full"), Target: 4},
		figure{Name: "peak RSS of the reads and writes above", Unit: "MiB", Measured: peak},
		figure{Name: "RSS growth per object, after a restart", Unit: "B", Measured: c.growth(loaded, empty, "rss"), Target: 6},
		figure{Name: "live heap growth per object, after a restart", Unit: "B", Measured: c.growth(loaded, empty, "heap")},
	)
	return nil
}

// restarts kills and starts the servers in several rounds. It measures the seconds until a list
// was answered and until the watch caches were full, and the memory of the idle server after it.
func (p *peer) restarts(ctx context.Context, servers []*server, settle time.Duration) (values, error) {
	measured := values{}
	for range p.rounds {
		for _, s := range servers {
			listed, full, err := s.restart(ctx)
			if err != nil {
				return nil, err
			}
			measured.add("listed", s, listed.Seconds())
			measured.add("full", s, full.Seconds())
		}
		if err := measureMemory(ctx, servers, settle, measured); err != nil {
			return nil, err
		}
	}
	return measured, nil
}

// measureMemory measures RSS and live heap in bytes of servers that are idle after a garbage
// collection.
func measureMemory(ctx context.Context, servers []*server, settle time.Duration, into values) error {
	for _, s := range servers {
		if _, err := s.heap(ctx); err != nil {
			return err
		}
	}
	if err := idle(ctx, settle); err != nil {
		return err
	}
	for _, s := range servers {
		usage, err := s.usage()
		if err != nil {
			return err
		}
		heap, err := s.heap(ctx)
		if err != nil {
			return err
		}
		into.add("rss", s, float64(usage.RSS))
		into.add("heap", s, float64(heap))
	}
	return nil
}
