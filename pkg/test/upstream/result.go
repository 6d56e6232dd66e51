// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// state is the result of a test.
type state string

const (
	passed  state = "pass"
	skipped state = "skip"
	failed  state = "FAIL"
)

// outcome is the result of one test, and the reason if it did not pass.
type outcome struct {
	test   string
	state  state
	reason string
}

// result is the result of a suite.
type result struct {
	suite    string
	outcomes []outcome
	err      error
	took     time.Duration
}

func (r *result) count(state state) (n int) {
	for _, outcome := range r.outcomes {
		if outcome.state == state {
			n++
		}
	}
	return n
}

func (r *result) print() {
	fmt.Printf("\n=== %s\n", r.suite)
	slices.SortFunc(r.outcomes, func(a, b outcome) int {
		return strings.Compare(string(a.state)+a.test, string(b.state)+b.test)
	})
	for _, outcome := range r.outcomes {
		fmt.Printf("%s  %s\n", outcome.state, outcome.test)
		if outcome.state != passed {
			fmt.Printf("      %s\n", strings.ReplaceAll(strings.TrimSpace(outcome.reason), "\n", "\n      "))
		}
	}
	if r.err != nil {
		fmt.Println(r.err)
	}
}

// summarize prints each test, then a line for each suite, and returns an error if a test
// failed.
func summarize(results []result) error {
	for _, result := range results {
		result.print()
	}
	fmt.Printf("\n=== summary\n")
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SUITE\tPASSED\tSKIPPED\tFAILED\tTIME\tRESULT")
	bad := false
	for _, result := range results {
		status := "ok"
		if result.err != nil || result.count(failed) > 0 {
			status, bad = "FAILED", true
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s\t%s\n", result.suite,
			result.count(passed), result.count(skipped), result.count(failed), result.took.Round(time.Second), status)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if bad {
		return errors.New("tests of upstream failed")
	}
	return nil
}
