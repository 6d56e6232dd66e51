// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const (
	// restarts is the number of measured starts; the median counts.
	restarts = 5
	// manyCRDs is the number of CRDs that a large installation has.
	manyCRDs = 500
	// creators is the number of concurrent creates when single ones are not timed.
	creators = 8
	// probes is the number of CRDs that are timed one by one.
	probes = 11
	// thingBytes is the size of objects whose size does not matter.
	thingBytes = 1500
)

// annexParts are measured in this order, unless arguments select some by name.
var annexParts = []struct {
	name, title string
	servers     []string
	measure     func(context.Context, *session) error
}{
	{"start", "starts on a fresh data directory", []string{annexName}, measureStarts},
	{"few", "CRDs one by one, and starts after kill -9", []string{annexName}, measureFewCRDs},
	{"many", fmt.Sprintf("%d CRDs", manyCRDs), []string{annexName}, measureManyCRDs},
	{"retention", "a resource while expired objects of another one are deleted", []string{"with deletions", "without"}, measureRetention},
	{"aggregated", "annex behind a main cluster", []string{"through it", "directly"}, measureAggregated},
	{"behind", fmt.Sprintf("%d objects of %d bytes, kube-apiserver and annex together", behindObjects, behindBytes), []string{"native", "behind"}, measureBehind},
	{"moves", "a group that moves into annex and back", []string{"main cluster"}, measureMoves},
	{"compression", "compressed objects", []string{"compressed", "plain"}, measureCompression},
}

func newAnnexCommand() *cobra.Command {
	var names []string
	for _, part := range annexParts {
		names = append(names, part.name)
	}
	command := &cobra.Command{Use: "annex [PART...]", Args: cobra.OnlyValidArgs, ValidArgs: names, Short: "Measure parts of annex",
		Long: "Measure parts of annex, by default all: " + strings.Join(names, ", ") + "."}
	var set settings
	set.addFlags(command)
	command.Flags().IntVar(&set.moved, "moved", 10_000, "How many objects move for the part moves.")
	command.Flags().IntVar(&set.expired, "expired", 10_000, "How many objects expire for the part retention.")
	command.RunE = func(command *cobra.Command, only []string) error {
		var cases []*session
		for _, part := range annexParts {
			if len(only) == 0 || slices.Contains(only, part.name) {
				cases = append(cases, &session{caseReport: caseReport{Title: part.title, Servers: part.servers}, measure: part.measure})
			}
		}
		return set.run(command.Context(), "annex", []string{annexName, "etcd"}, cases...)
	}
	return command
}

// compare measures an operation on the servers, or on the states of one, that the case names.
func (s *session) compare(ctx context.Context, o operation, rounds int, servers ...*server) error {
	for i, server := range servers {
		servers[i] = server.as(s.Servers[i])
	}
	f, err := o.compare(ctx, rounds, servers)
	s.Figures = append(s.Figures, f)
	return err
}

func measureStarts(ctx context.Context, s *session) error {
	info, err := os.Stat(s.program(annexName))
	if err != nil {
		return err
	}
	s.add("stripped binary", "MB", float64(info.Size())/1e6, 100)
	var took []float64
	for i := range restarts {
		annex, err := s.startAnnex(ctx, fmt.Sprint(i), nil)
		if err != nil {
			return err
		}
		took = append(took, annex.ready.Seconds())
		if i == restarts-1 {
			err = s.addRSS(ctx, annex, "idle RSS", 150)
		}
		annex.kill()
		if err != nil {
			return err
		}
	}
	s.add("process start to ready, median", "s", quantile(took, 0.5), 1)
	return nil
}

// restarted kills annex as kill -9 does, and measures its start.
func (s *session) restarted(ctx context.Context, annex *server) error {
	var took []float64
	for range restarts {
		annex.kill()
		if err := annex.start(ctx); err != nil {
			return err
		}
		took = append(took, annex.ready.Seconds())
	}
	s.add("process start to ready, after kill -9, median", "s", quantile(took, 0.5), 1)
	return nil
}

// addRSS reads the memory of the idle server.
func (s *session) addRSS(ctx context.Context, annex *server, name string, limit float64) error {
	if err := idle(ctx, s.settle); err != nil {
		return err
	}
	usage, err := annex.usage()
	s.add(name, "MiB", mebibytes(usage.RSS), limit)
	return err
}

// measureFewCRDs times CRDs one by one, then restarts.
func measureFewCRDs(ctx context.Context, s *session) error {
	annex, err := s.startAnnex(ctx, annexName, nil)
	if err != nil {
		return err
	}
	var took []float64
	for i := range probes {
		served, err := annex.define(ctx, things(i).definition())
		if err != nil {
			return err
		}
		took = append(took, milliseconds(served))
	}
	s.add("CRD create to its objects are listed, median", "ms", quantile(took, 0.5), 50)
	s.add("the same, slowest", "ms", quantile(took, 1), 0)
	return s.restarted(ctx, annex)
}

func measureManyCRDs(ctx context.Context, s *session) error {
	annex, err := s.startAnnex(ctx, annexName, nil)
	if err != nil {
		return err
	}
	began := time.Now()
	_, err = countUp(creators, 0, manyCRDs, func(i int) (response, error) {
		took, err := annex.define(ctx, things(i).definition())
		return response{took: took}, err
	})
	if err != nil {
		return err
	}
	s.add("created and served", "s", time.Since(began).Seconds(), 0)
	if err := s.addRSS(ctx, annex, "idle RSS, as created", 0); err != nil {
		return err
	}
	if err := s.restarted(ctx, annex); err != nil {
		return err
	}
	return s.addRSS(ctx, annex, "idle RSS, after a start", 0)
}
