// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// checkTimeout bounds one check, so that a main cluster that hangs is reported.
const checkTimeout = 30 * time.Second

// check checks one thing on the path from a user to annex's data.
type check struct {
	name string
	// after are checks that have to pass for this one to run.
	after []string
	run   func(ctx context.Context, e *environment) []finding
}

// Names of checks that others depend on.
const (
	mainCluster = "main-cluster"
	throughMain = "through-main"
	apiService  = "apiservice"
)

// checks are in the order of their dependencies: the first failure is the one to fix first.
var checks = []check{
	{name: mainCluster, run: checkMainCluster},
	{name: "service", after: []string{mainCluster}, run: checkService},
	{name: "endpoints", after: []string{mainCluster, "service"}, run: checkEndpoints},
	{name: "rbac", after: []string{mainCluster}, run: checkRBAC},
	{name: "groups-rbac", after: []string{mainCluster}, run: checkGroupsRBAC},
	{name: "front-proxy", after: []string{mainCluster}, run: checkFrontProxy},
	{name: "leader", after: []string{mainCluster}, run: checkLeader},
	{name: "deletions", after: []string{mainCluster}, run: checkDeletions},
	{name: apiService, after: []string{mainCluster}, run: checkAPIService},
	{name: "certificates", after: []string{mainCluster}, run: checkCertificates},
	{name: throughMain, after: []string{mainCluster, apiService}, run: checkThroughMain},
	{name: "published", after: []string{mainCluster}, run: checkPublished},
	{name: "leftovers", after: []string{mainCluster}, run: checkLeftovers},
	{name: "resources", after: []string{mainCluster, throughMain}, run: checkResources},
	{name: "discovery", after: []string{mainCluster}, run: checkDiscovery},
	{name: "openapi", after: []string{mainCluster}, run: checkOpenAPI},
	{name: "policies", after: []string{mainCluster}, run: checkPolicies},
	{name: "clock", after: []string{mainCluster}, run: checkClock},
}

func examine(ctx context.Context, e *environment, checks []check) []finding {
	var findings []finding
	broken := map[string]bool{}
	for _, c := range checks {
		var found []finding
		missing := slices.DeleteFunc(slices.Clone(c.after), func(name string) bool { return !broken[name] })
		if len(missing) > 0 {
			found = []finding{{Status: statusSkip, Message: "skipped, because this fails: " + strings.Join(missing, ", ")}}
			broken[c.name] = true
		} else {
			limited, cancel := context.WithTimeout(ctx, checkTimeout)
			found = c.run(limited, e)
			cancel()
		}
		for _, f := range found {
			f.Check = c.name
			broken[c.name] = broken[c.name] || f.Status == statusFail
			findings = append(findings, f)
		}
	}
	return findings
}

type level string

const (
	statusOK   level = "ok"
	statusWarn level = "warn"
	statusFail level = "FAIL"
	// statusSkip is a check that was not run because one that it depends on failed.
	statusSkip level = "skip"
)

type finding struct {
	Check   string `json:"check"`
	Status  level  `json:"status"`
	Message string `json:"message"`
	// Fix is the command that fixes the problem, or shows more about it.
	Fix string `json:"fix,omitempty"`
}

func ok(format string, args ...any) finding {
	return finding{Status: statusOK, Message: fmt.Sprintf(format, args...)}
}

// orOK returns the findings, or if there are none that all is well.
func orOK(findings []finding, format string, args ...any) []finding {
	if len(findings) > 0 {
		return findings
	}
	return []finding{ok(format, args...)}
}

// okBefore adds that all is well, unless something failed.
func okBefore(findings []finding, format string, args ...any) []finding {
	if failed(findings) > 0 {
		return findings
	}
	return append([]finding{ok(format, args...)}, findings...)
}

func warn(fix, format string, args ...any) finding {
	return finding{Status: statusWarn, Message: fmt.Sprintf(format, args...), Fix: fix}
}

func fail(fix, format string, args ...any) finding {
	return finding{Status: statusFail, Message: fmt.Sprintf(format, args...), Fix: fix}
}

// failed counts the failures, which make the command exit with 1.
func failed(findings []finding) int {
	count := 0
	for _, f := range findings {
		if f.Status == statusFail {
			count++
		}
	}
	return count
}

// printText writes aligned lines, each followed by its command, if there is one.
func printText(out io.Writer, findings []finding) error {
	width := 0
	for _, c := range checks {
		width = max(width, len(c.name))
	}
	indent := strings.Repeat(" ", len(statusFail)+2+width+2)
	var lines strings.Builder
	for _, f := range findings {
		message := strings.ReplaceAll(strings.TrimSpace(f.Message), "\n", "\n"+indent)
		fmt.Fprintf(&lines, "%-*s  %-*s  %s\n", len(statusFail), f.Status, width, f.Check, message)
		if f.Fix != "" {
			fmt.Fprintf(&lines, "%s-> %s\n", indent, f.Fix)
		}
	}
	_, err := io.WriteString(out, lines.String())
	return err
}

type summary struct {
	Failed   int       `json:"failed"`
	Findings []finding `json:"findings"`
}
