// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package health checks annex, its objects, and everything between a user of the main cluster and annex's data. It is behind
// `annex status` and `annex doctor`, which show the same findings. It changes nothing.
package health

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/annex-dev/annex/pkg/cmd/internal/login"
)

// checkTimeout bounds one check, so that a main cluster that hangs is reported.
const checkTimeout = 30 * time.Second

// Scope selects checks.
type Scope uint8

// Doctor has all checks of an annex behind a main cluster, Status those that are quick, Preflight those of a main cluster
// before annex is installed, and Direct those of annex itself.
const (
	Doctor Scope = 1 << iota
	Status
	Preflight
	Direct
)

// check checks one thing on the path from a user to annex's data.
type check struct {
	name string
	in   Scope
	// after are checks that have to pass for this one to run.
	after []string
	run   func(ctx context.Context, e *environment) []Finding
}

// Names of checks that others depend on.
const (
	mainCluster = "main-cluster"
	mainObjects = "main-objects"
	throughMain = "through-main"
	apiService  = "apiservice"
	server      = "server"
)

// checks are in the order of their dependencies: the first failure is the one to fix first.
var checks = []check{
	{name: mainCluster, in: Doctor | Status | Preflight, run: checkMainCluster},
	{name: mainObjects, in: Doctor | Status | Preflight, after: []string{mainCluster}, run: checkMainObjects},
	{name: "installation", in: Preflight, after: []string{mainObjects}, run: checkInstallation},
	{name: "service", in: Doctor | Status, after: []string{mainObjects}, run: checkService},
	{name: "endpoints", in: Doctor | Status, after: []string{mainObjects, "service"}, run: checkEndpoints},
	{name: "aggregated-roles", in: Doctor | Preflight, after: []string{mainObjects}, run: checkAggregatedRoles},
	{name: "rbac", in: Doctor, after: []string{mainObjects}, run: checkRBAC},
	{name: "groups-rbac", in: Doctor, after: []string{mainObjects}, run: checkGroupsRBAC},
	{name: "front-proxy", in: Doctor | Preflight, after: []string{mainObjects}, run: checkFrontProxy},
	{name: "leader", in: Doctor | Status, after: []string{mainObjects}, run: checkLeader},
	{name: "deletions", in: Doctor | Status, after: []string{mainObjects}, run: checkDeletions},
	{name: apiService, in: Doctor | Status, after: []string{mainObjects}, run: checkAPIService},
	{name: "certificates", in: Doctor | Status, after: []string{mainObjects}, run: checkCertificates},
	{name: throughMain, in: Doctor | Status, after: []string{mainCluster, apiService}, run: checkThroughMain},
	{name: "published", in: Doctor, after: []string{mainObjects}, run: checkPublished},
	{name: "leftovers", in: Doctor | Status, after: []string{mainObjects}, run: checkLeftovers},
	{name: server, in: Direct, run: checkServer},
	{name: "metrics", in: Direct, after: []string{server}, run: checkMetrics},
	{name: "stores", in: Doctor | Status | Direct, after: []string{mainCluster, throughMain, server}, run: checkStores},
	{name: "resources", in: Doctor | Status | Direct, after: []string{mainCluster, throughMain, server}, run: checkResources},
	{name: "migrations", in: Doctor | Status | Direct, after: []string{mainCluster, throughMain, server}, run: checkMigrations},
	{name: "static-sources", in: Doctor | Status | Direct, after: []string{mainCluster, throughMain, server}, run: checkStaticSources},
	{name: "discovery", in: Doctor | Preflight, after: []string{mainObjects}, run: checkDiscovery},
	{name: "openapi", in: Doctor | Preflight, after: []string{mainObjects}, run: checkOpenAPI},
	{name: "policies", in: Doctor | Preflight, after: []string{mainCluster}, run: checkPolicies},
	{name: "volumes", in: Preflight, after: []string{mainCluster}, run: checkVolumes},
	{name: "clock", in: Doctor | Preflight, after: []string{mainCluster}, run: checkClock},
}

// Report has what checks found.
type Report struct {
	Server Server
	// Objects is nil if annex's objects could not be read.
	Objects  *Objects
	Findings []Finding
}

// Examine runs the checks of a scope.
func Examine(ctx context.Context, clients *login.Clients, options *Options, scope Scope) (*Report, error) {
	e, err := newEnvironment(clients, options, scope)
	if err != nil {
		return nil, err
	}
	findings := examine(ctx, e, slices.DeleteFunc(slices.Clone(checks), func(c check) bool { return c.in&scope == 0 }))
	return &Report{e.server, e.objects, findings}, nil
}

func examine(ctx context.Context, e *environment, checks []check) []Finding {
	var findings []Finding
	// A check that could not read what it needs returns LevelSkip. It does not show that something is broken.
	broken, unread := map[string]bool{}, map[string]bool{}
	for _, c := range checks {
		fails := slices.DeleteFunc(slices.Clone(c.after), func(name string) bool { return !broken[name] })
		lacks := slices.DeleteFunc(slices.Clone(c.after), func(name string) bool { return !unread[name] })
		var found []Finding
		switch {
		case len(fails) > 0:
			found = []Finding{skip("skipped, because this fails: %s", strings.Join(fails, ", "))}
			broken[c.name] = true
		case len(lacks) > 0:
			found = []Finding{skip("skipped, because this is not known: %s", strings.Join(lacks, ", "))}
		default:
			limited, cancel := context.WithTimeout(ctx, checkTimeout)
			found = c.run(limited, e)
			cancel()
			unread[c.name] = slices.ContainsFunc(found, func(f Finding) bool { return f.Level == LevelSkip })
		}
		for _, f := range found {
			f.Check = c.name
			broken[c.name] = broken[c.name] || f.Level == LevelFail
			findings = append(findings, f)
		}
	}
	return findings
}
