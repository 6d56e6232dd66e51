// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// result is the result of one level. The exported fields are kept for testrun summary.
type result struct {
	Level      string
	SkipReason string `json:",omitempty"`
	Elapsed    time.Duration

	Packages, Passed, Failures, Skipped int
	// Tests are the slowest top-level tests, slowest first.
	Tests []timing
	// Messages has the output of failed tests, without the logs of servers.
	Messages []string `json:",omitempty"`

	// output holds what a running test or package has printed so far.
	output map[string][]string
}

// timing has the run time of a test in seconds. The time in which a parallel test waits for its turn does not
// count.
type timing struct {
	Package, Test string
	Seconds       float64
}

// slowest limits the tests that a summary lists.
const slowest = 20

func newResult(level string) *result {
	return &result{Level: level, output: map[string][]string{}}
}

func (r *result) failed() bool { return r.Failures > 0 }

// fail records that the level failed, unless a test that failed says why.
func (r *result) fail(err error) {
	if r.Failures == 0 {
		r.Failures++
		r.Messages = append(r.Messages, err.Error()+"\n")
	}
}

// read follows the events of go test, and prints a line for each package and
// the whole output of whatever fails.
func (r *result) read(events io.Reader, out io.Writer) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				// Not an event, but a message of go test itself.
				fmt.Fprintf(out, "%s", line)
			} else {
				r.handle(e, out)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the events of go test: %w", err)
		}
	}
}

func (r *result) handle(e event, out io.Writer) {
	key := e.Package + e.ImportPath + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		r.output[key] = append(r.output[key], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.packageDone(e, out)
		} else {
			r.testDone(e, out)
		}
		delete(r.output, key)
	case "build-fail":
		fmt.Fprint(out, strings.Join(r.output[key], ""))
		r.Failures++
	}
}

func (r *result) testDone(e event, out io.Writer) {
	if !strings.Contains(e.Test, "/") {
		r.Tests = slowestOf(append(r.Tests, timing{strings.TrimPrefix(e.Package, module+"/"), e.Test, e.Elapsed}))
	}
	switch e.Action {
	case "pass":
		r.Passed++
	case "skip":
		r.Skipped++
		fmt.Fprintf(out, "skip  %s: %s\n", e.Test, reason(r.output[e.Package+" "+e.Test]))
	case "fail":
		r.Failures++
		lines := r.output[e.Package+" "+e.Test]
		fmt.Fprint(out, relevant(lines))
		r.Messages = append(r.Messages, fmt.Sprintf("--- FAIL: %s (%s, %.1fs)\n%s", e.Test, strings.TrimPrefix(e.Package, module+"/"), e.Elapsed, reported(lines)))
	}
}

func (r *result) packageDone(e event, out io.Writer) {
	if e.Action == "skip" {
		return
	}
	r.Packages++
	name := strings.TrimPrefix(e.Package, module+"/")
	if e.Action == "pass" {
		fmt.Fprintf(out, "ok    %-44s %6.1fs\n", name, e.Elapsed)
		return
	}
	// A panic or a timeout is in the output of the package and of unfinished tests.
	for key, lines := range r.output {
		if strings.HasPrefix(key, e.Package+" ") {
			fmt.Fprint(out, strings.Join(lines, ""))
			delete(r.output, key)
		}
	}
	fmt.Fprintf(out, "FAIL  %-44s %6.1fs\n", name, e.Elapsed)
	r.Failures++
}

// reason returns the last message of a skipped test.
func reason(lines []string) string {
	last := "no reason given"
	for _, line := range lines {
		if text := strings.TrimSpace(line); text != "" && !strings.HasPrefix(text, "=== ") && !strings.HasPrefix(text, "--- SKIP") {
			last = text
		}
	}
	return last
}

// relevant drops the lines about tests being started, paused or continued.
func relevant(lines []string) string {
	var kept strings.Builder
	for _, line := range lines {
		if !strings.HasPrefix(line, "=== ") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// logLine matches the lines of klog and etcd in what a test has printed.
var logLine = regexp.MustCompile(`^ +([IWEF][0-9]{4} |\{"level":)`)

// reported returns what a test itself has printed, which testing indents.
func reported(lines []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		return !strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "    ---") || logLine.MatchString(line)
	}), "")
}

func slowestOf(tests []timing) []timing {
	slices.SortStableFunc(tests, func(a, b timing) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return tests[:min(len(tests), slowest)]
}

// printSummary prints a table of the levels, the slowest tests, and what failed tests reported.
func printSummary(out io.Writer, results []*result) {
	fmt.Fprintf(out, "\n=== summary\n")
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LEVEL\tPACKAGES\tPASSED\tFAILED\tSKIPPED\tTIME\tRESULT")
	total := newResult("")
	for _, result := range results {
		word := "ok"
		switch {
		case result.failed():
			word = "FAILED"
		case result.SkipReason != "":
			word = "skipped: " + result.SkipReason
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%s\t%s\n", result.Level, result.Packages, result.Passed, result.Failures, result.Skipped, result.Elapsed.Round(time.Second), word)
		total.add(result)
	}
	fmt.Fprintln(table, "\nSLOWEST TEST\tSECONDS\tPACKAGE")
	for _, test := range total.Tests {
		fmt.Fprintf(table, "%s\t%.1f\t%s\n", test.Test, test.Seconds, test.Package)
	}
	_ = table.Flush()
	for _, message := range total.Messages {
		fmt.Fprintf(out, "\n%s", message)
	}
	verdict := "PASS"
	if total.failed() {
		verdict = "FAIL"
	}
	fmt.Fprintf(out, "\n%s in %s\n%d passed, %d failed, %d skipped\n", verdict, total.Elapsed.Round(time.Second), total.Passed, total.Failures, total.Skipped)
}

func (r *result) add(other *result) {
	r.Passed += other.Passed
	r.Failures += other.Failures
	r.Skipped += other.Skipped
	r.Elapsed += other.Elapsed
	r.Tests = slowestOf(append(r.Tests, other.Tests...))
	r.Messages = append(r.Messages, other.Messages...)
}

// resultsDir has a file for the last result of each level.
const resultsDir = "bin/test-results"

func saveResults(results []*result) error {
	if err := os.MkdirAll(resultsDir, 0o700); err != nil {
		return fmt.Errorf("create a directory for the results: %w", err)
	}
	for _, result := range results {
		encoded, err := json.MarshalIndent(result, "", "  ")
		if err == nil {
			err = os.WriteFile(filepath.Join(resultsDir, result.Level+".json"), encoded, 0o600)
		}
		if err != nil {
			return fmt.Errorf("keep the result of level %s: %w", result.Level, err)
		}
	}
	return nil
}

// loadResults returns the results that were saved, in the order of the levels.
func loadResults() ([]*result, error) {
	var results []*result
	for _, level := range levels {
		encoded, err := os.ReadFile(filepath.Join(resultsDir, level.name+".json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		loaded := newResult(level.name)
		if err == nil {
			err = json.Unmarshal(encoded, loaded)
		}
		if err != nil {
			return nil, fmt.Errorf("read the result of level %s: %w", level.name, err)
		}
		results = append(results, loaded)
	}
	return results, nil
}
