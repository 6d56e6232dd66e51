// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/annex-dev/annex/pkg/test/random"
)

// part is a part of make test-long.
type part struct {
	name    string
	command []string
}

// runLong runs each random test for a duration, all fuzz targets together for another one, the tests with the
// previous release, a release and Kubernetes' own. It goes on after a failure.
func runLong(ctx context.Context, text string) error {
	duration, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("parse the duration of each part: %w", err)
	}
	if err := os.Setenv(random.DurationVariable, text); err != nil {
		return fmt.Errorf("set %s: %w", random.DurationVariable, err)
	}
	test := func(name, pattern, path string, flags ...string) part {
		command := append([]string{"go", "test", "-count=1", "-timeout=0", "-v", "-vet=off", "-run=" + pattern}, flags...)
		return part{name, append(command, path)}
	}
	parts := []part{
		test("moves between Stores", "^TestTorture$", "./pkg/storage/routing"),
		test("moves of a group", "^TestTorture$", "./pkg/test/cluster/groupmove", "-tags=cluster"),
		test("reads compared with upstream's", "^TestRandom$", "./pkg/test/integration/differential"),
		test("plans compared with upstream's writes", "^TestPlans$", "./pkg/test/integration/differential"),
		test("planned writes compared with upstream's", "^TestPlannedWrites$", "./pkg/test/integration/differential"),
	}
	targets, err := fuzzTargets(".")
	if err != nil {
		return err
	}
	for _, target := range targets {
		share := max(duration/time.Duration(len(targets)), time.Second)
		parts = append(parts, test(target.name, "^$", target.path, "-fuzz=^"+target.name+"$", "-fuzztime="+share.String()))
	}
	parts = append(parts,
		part{"unit tests under the race detector", []string{"go", "run", "./hack/testrun", "race-all"}},
		part{"annex beside its previous release", []string{"make", "test-skew"}},
		part{"a release", []string{"make", "test-release"}},
		part{"Kubernetes' own tests", []string{"go", "run", "./pkg/test/upstream"}})
	return runParts(ctx, parts)
}

func runParts(ctx context.Context, parts []part) error {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PART\tTIME\tRESULT")
	var failed error
	for _, part := range parts {
		if ctx.Err() != nil {
			break
		}
		fmt.Printf("\n=== %s: %s\n", part.name, strings.Join(part.command, " "))
		began, word := time.Now(), "ok"
		command := interruptible(ctx, part.command[0], part.command[1:]...)
		command.Stdout = os.Stdout
		if err := command.Run(); err != nil {
			failed = errors.New("tests failed")
			word = fmt.Sprintf("FAILED: %v", err)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", part.name, time.Since(began).Round(time.Second), word)
	}
	fmt.Printf("\n=== summary; %s=SEED repeats a random test\n", random.SeedVariable)
	return errors.Join(table.Flush(), failed, ctx.Err())
}

// fuzzTarget is a fuzz test and its package.
type fuzzTarget struct{ name, path string }

var fuzzFunction = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// fuzzTargets returns all fuzz tests below a directory.
func fuzzTargets(root string) ([]fuzzTarget, error) {
	var targets []fuzzTarget
	err := filepath.WalkDir(filepath.Join(root, "pkg"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		for _, match := range fuzzFunction.FindAllStringSubmatch(string(content), -1) {
			targets = append(targets, fuzzTarget{match[1], "./" + filepath.Dir(path)})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find the fuzz tests: %w", err)
	}
	return targets, nil
}
