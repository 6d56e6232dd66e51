// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package random runs tests that do random things. By default such a test is short and always does
// the same. make test-long sets variables that make it long, with a new seed.
package random

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// Environment variables that change a run.
const (
	// DurationVariable makes a test repeat its rounds for a duration such as 10m, with a new seed.
	DurationVariable = "ANNEX_TEST_DURATION"
	// SeedVariable repeats a run with the seed that it has logged.
	SeedVariable = "ANNEX_TEST_SEED"
)

const defaultSeed = 1

// Run is one run of a random test, in rounds.
type Run struct {
	// Long reports whether a duration is set.
	Long bool

	seed    uint64
	minimum int
	rounds  int
	ends    time.Time
}

// Start begins a run of at least a minimum of rounds, and logs its seed.
func Start(t testing.TB, minimum int) *Run {
	t.Helper()
	r := &Run{seed: defaultSeed, minimum: minimum}
	if set := os.Getenv(DurationVariable); set != "" {
		duration, err := time.ParseDuration(set)
		if err != nil {
			t.Fatalf("parse %s: %v", DurationVariable, err)
		}
		r.Long, r.seed, r.ends = true, uint64(time.Now().UnixNano()), time.Now().Add(duration)
	}
	if set := os.Getenv(SeedVariable); set != "" {
		seed, err := strconv.ParseUint(set, 10, 64)
		if err != nil {
			t.Fatalf("parse %s: %v", SeedVariable, err)
		}
		r.seed = seed
	}
	t.Logf("%s=%d", SeedVariable, r.seed)
	return r
}

// Rand returns a source of random numbers for one part of the test. Parts that run concurrently
// need one each.
func (r *Run) Rand(part uint64) *rand.Rand { return rand.New(rand.NewPCG(r.seed, part)) }

// Seed is the seed of the run, for the names of files.
func (r *Run) Seed() uint64 { return r.seed }

// Next reports whether another round follows, and counts it.
func (r *Run) Next() bool {
	r.rounds++
	return r.rounds <= r.minimum || time.Now().Before(r.ends)
}
