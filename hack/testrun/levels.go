// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

const module = "github.com/annex-dev/annex"

// level is one kind of tests.
type level struct {
	name   string
	covers string
	flags  []string
	// env is added to the environment of go test, and of all that it runs.
	env []string
	// packages lists what go test is called with.
	packages func(ctx context.Context) ([]string, error)
	// skip returns why the level cannot run here, or nothing. It is nil if the level runs everywhere.
	skip func(ctx context.Context) string
}

// rareCollections is for levels that run servers by the dozen: a fifth of their CPU time was garbage collection.
const rareCollections = "GOGC=400"

// levels are in the order in which they are worth waiting for.
var levels = []level{
	{
		name:     "unit",
		covers:   "each package, and the conventions",
		flags:    []string{"-p=4", "-parallel=8", "-timeout=15m"}, // packages link while the tests of others wait
		packages: unitPackages,
	},
	{
		name:     "race",
		covers:   "the unit tests of the packages with the most concurrency, under the race detector",
		flags:    []string{"-race", "-p=4", "-timeout=10m"},
		packages: racePackages,
		skip:     needCompiler,
	},
	{
		name:   "integration",
		covers: "whole servers inside the test process",
		// make test-long runs the random comparison with upstream.
		flags:    []string{"-timeout=30m", "-skip=^TestRandom$"},
		env:      []string{rareCollections},
		packages: fixed("./pkg/test/integration/..."),
	},
	{
		name:     "e2e",
		covers:   "bin/annex as a process, used with kubectl, with the CRDs of other projects and with an operator on controller-runtime",
		flags:    []string{"-tags=e2e", "-parallel=8", "-timeout=20m"},
		packages: fixed("./pkg/test/e2e/..."),
	},
	{
		name:   "cluster",
		covers: "annex behind a real kube-apiserver and kube-controller-manager",
		// Each package runs a cluster of its own, which takes half a gigabyte, and mostly waits. The longest begins first.
		flags:    []string{"-tags=cluster", "-p=4", "-parallel=4", "-timeout=40m"},
		env:      []string{"GOGC=200"}, // four annexes with rareCollections take 14 GB
		packages: fixed("./pkg/test/cluster/groupmove", "./pkg/test/cluster/..."),
	},
	{
		name:     "skew",
		covers:   "bin/annex together with the previous release",
		flags:    []string{"-tags=skew", "-timeout=20m"},
		packages: fixed("./pkg/test/skew"),
	},
	{
		name:     "release",
		covers:   "a release, made twice",
		flags:    []string{"-tags=release", "-timeout=0"},
		packages: fixed("./pkg/test/release"),
	},
	{
		name:     "race-all",
		covers:   "all unit tests that run in seconds, under the race detector; a part of make test-long",
		flags:    []string{"-race", "-shuffle=on", "-skip=^TestTorture$", "-timeout=60m"},
		packages: packagesOfUnits,
		skip:     needCompiler,
	},
}

// raced are few: each dependency is compiled once more for the race detector. make test-long covers the others.
var raced = []string{
	"./pkg/controller/framework/...", "./pkg/datadir", "./pkg/standalone/controller/metadatainformers",
	"./pkg/storage/etcd/embeddedetcd", "./pkg/storage/etcd/usage", "./pkg/storage/layer/compression", "./pkg/storage/layer/limits",
}

func selectLevels(names []string) ([]level, error) {
	var selected []level
	for _, name := range names {
		index := slices.IndexFunc(levels, func(level level) bool { return level.name == name })
		if index < 0 {
			return nil, fmt.Errorf("there is no level of tests %q", name)
		}
		selected = append(selected, levels[index])
	}
	if len(selected) == 0 {
		return nil, errors.New("name the levels of tests to run")
	}
	return selected, nil
}

func fixed(paths ...string) func(context.Context) ([]string, error) {
	return func(context.Context) ([]string, error) { return paths, nil }
}

// unitPackages are all packages that no other level runs.
func unitPackages(ctx context.Context) ([]string, error) {
	all, err := packagesOfUnits(ctx)
	if err != nil || needCompiler(ctx) != "" {
		return all, err
	}
	elsewhere, err := racePackages(ctx)
	return slices.DeleteFunc(all, func(path string) bool { return slices.Contains(elsewhere, path) }), err
}

// packagesOfUnits are all packages but those that need more than their own process.
func packagesOfUnits(ctx context.Context) ([]string, error) {
	// The longest begins first.
	all, err := listPackages(ctx, "./pkg/test/conformance", "./...")
	return slices.DeleteFunc(all, func(path string) bool {
		return strings.HasPrefix(path, module+"/pkg/generated/") ||
			slices.ContainsFunc([]string{"integration/", "e2e/", "cluster/"}, func(level string) bool {
				return strings.HasPrefix(path+"/", module+"/pkg/test/"+level)
			})
	}), err
}

func racePackages(ctx context.Context) ([]string, error) { return listPackages(ctx, raced...) }

func listPackages(ctx context.Context, patterns ...string) ([]string, error) {
	output, err := exec.CommandContext(ctx, "go", append([]string{"list"}, patterns...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages of %s: %w", strings.Join(patterns, " "), err)
	}
	return strings.Fields(string(output)), nil
}

// needCompiler reports a machine without a C compiler: the race detector is
// linked with cgo.
func needCompiler(ctx context.Context) string {
	output, err := exec.CommandContext(ctx, "go", "env", "CGO_ENABLED", "CC").Output()
	if err != nil {
		return fmt.Sprintf("go env: %v", err)
	}
	settings := strings.Fields(string(output))
	if len(settings) < 2 || settings[0] != "1" {
		return "the race detector needs cgo, which is off"
	}
	if _, err := exec.LookPath(settings[1]); err != nil {
		return fmt.Sprintf("the race detector needs a C compiler: %v", err)
	}
	return ""
}
