// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
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

// result is the result of one level.
type result struct {
	level      string
	skipReason string
	err        error
	elapsed    time.Duration

	packages, passed, failures, skipped int
	// output holds what a running test or package has printed so far.
	output map[string][]string
	// messages are what failed tests reported, without the logs of servers.
	messages []string
}

func newResult(level string) *result {
	return &result{level: level, output: map[string][]string{}}
}

func (r *result) failed() bool { return r.err != nil || r.failures > 0 }

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
		r.failures++
	}
}

func (r *result) testDone(e event, out io.Writer) {
	switch e.Action {
	case "pass":
		r.passed++
	case "skip":
		r.skipped++
		fmt.Fprintf(out, "skip  %s: %s\n", e.Test, reason(r.output[e.Package+" "+e.Test]))
	case "fail":
		r.failures++
		lines := r.output[e.Package+" "+e.Test]
		fmt.Fprint(out, relevant(lines))
		r.messages = append(r.messages, fmt.Sprintf("--- FAIL: %s (%s, %.1fs)\n%s", e.Test, strings.TrimPrefix(e.Package, module+"/"), e.Elapsed, reported(lines)))
	}
}

func (r *result) packageDone(e event, out io.Writer) {
	if e.Action == "skip" {
		return
	}
	r.packages++
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
	r.failures++
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

func printSummary(results []*result) {
	fmt.Printf("\n=== summary\n")
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LEVEL\tPACKAGES\tPASSED\tFAILED\tSKIPPED\tTIME\tRESULT")
	verdict, elapsed := "PASS", time.Duration(0)
	var passed, failed, skipped int
	for _, result := range results {
		word := "ok"
		switch {
		case result.failed():
			word, verdict = "FAILED", "FAIL"
		case result.skipReason != "":
			word = "skipped: " + result.skipReason
		}
		passed += result.passed
		failed += result.failures
		skipped += result.skipped
		elapsed += result.elapsed
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%s\t%s\n", result.level, result.packages, result.passed, result.failures, result.skipped, result.elapsed.Round(time.Second), word)
	}
	if err := table.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	for _, result := range results {
		for _, message := range result.messages {
			fmt.Printf("\n%s", message)
		}
	}
	fmt.Printf("\n%s in %s\n%d passed, %d failed, %d skipped\n", verdict, elapsed.Round(time.Second), passed, failed, skipped)
}
