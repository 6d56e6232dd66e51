// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/poll"
)

// TestQuotaKubectl limits a namespace with kubectl's own commands for it.
func TestQuotaKubectl(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	const namespace = "quota-team"
	s.kubectl.run(t, "create", "namespace", namespace)
	here := func(args ...string) []string { return append(args, "-n", namespace) }

	s.kubectl.refuse(t, "", here("create", "quota", "objects", "--hard=widgets=1"), "must be a standard resource for quota")
	s.kubectl.refuse(t, "", here("create", "quota", "objects", "--hard=secrets=1", "--scopes=BestEffort"), "unsupported scope applied to resource")
	contains(t, s.kubectl.run(t, here("create", "quota", "objects", "--hard=secrets=1,count/configmaps=2")...), "resourcequota/objects created")
	described := func(want ...string) {
		t.Helper()
		poll.UntilDone(t, "the usage", func() (bool, string) {
			description := s.kubectl.run(t, here("describe", "quota", "objects")...)
			lines := " " + strings.Join(strings.Fields(description), " ") + " "
			for _, part := range want {
				if !strings.Contains(lines, " "+part+" ") {
					return false, description
				}
			}
			return true, description
		})
	}
	described("secrets 0 1", "count/configmaps 1 2")
	s.kubectl.run(t, here("create", "secret", "generic", "one")...)
	described("secrets 1 1")
	s.kubectl.refuse(t, "", here("create", "secret", "generic", "two"),
		`secrets "two" is forbidden: exceeded quota: objects, requested: secrets=1, used: secrets=1, limited: secrets=1`)
	s.kubectl.run(t, here("delete", "secret", "one")...)
	described("secrets 0 1")
	contains(t, s.kubectl.run(t, here("get", "quota")...), "REQUEST", "count/configmaps: 1/2, secrets: 0/1")
	contains(t, s.kubectl.run(t, here("describe", "namespace", namespace)...), "Resource Quotas", "count/configmaps")
}

// TestFlowControlKubectl uses flow control objects.
func TestFlowControlKubectl(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	schemas := s.kubectl.run(t, "get", "flowschemas")
	contains(t, schemas, "PRIORITYLEVEL", "MATCHINGPRECEDENCE", "DISTINGUISHERMETHOD", "MISSINGPL", "service-accounts", "global-default")
	if lines := strings.Split(strings.TrimSpace(schemas), "\n"); !strings.HasPrefix(lines[1], "exempt ") || !strings.HasPrefix(lines[len(lines)-1], "catch-all ") {
		t.Errorf("not in the order in which they are tried:\n%s", schemas)
	}
	contains(t, s.kubectl.run(t, "get", "prioritylevelconfigurations"), "NOMINALCONCURRENCYSHARES", "workload-low", "Exempt")
	contains(t, s.kubectl.run(t, "get", "--raw", "/debug/api_priority_and_fairness/dump_priority_levels"), "PriorityLevelName", "catch-all")
	s.kubectl.refuse(t, "", []string{"patch", "flowschema", "catch-all", "--type=merge", "-p", `{"spec":{"matchingPrecedence":9999}}`}, "spec of 'catch-all' must equal the fixed value")
}
