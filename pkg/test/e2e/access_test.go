// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const reconciled = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: rbac-reconciled}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: rbac-reconciled}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: rbac-reconciled}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: dave}
`

// TestRBACReconcile changes the role of a binding, which is immutable.
func TestRBACReconcile(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	reconcile := []string{"auth", "reconcile", "-f", "-"}
	s.kubectl.feed(t, reconciled, reconcile...)
	other := strings.ReplaceAll(reconciled, "kind: ClusterRole, name: rbac-reconciled", "kind: ClusterRole, name: view")
	s.kubectl.refuse(t, other, []string{"apply", "-f", "-"}, "field is immutable")
	s.kubectl.feed(t, other, reconcile...)
	expect.Contains(t, s.kubectl.run(t, "get", "clusterrolebinding", "rbac-reconciled"), "ClusterRole/view")
}

// TestFlowControlKubectl uses flow control objects.
func TestFlowControlKubectl(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	schemas := s.kubectl.run(t, "get", "flowschemas")
	expect.Contains(t, schemas, "PRIORITYLEVEL", "MATCHINGPRECEDENCE", "DISTINGUISHERMETHOD", "MISSINGPL", "service-accounts", "global-default")
	if lines := strings.Split(strings.TrimSpace(schemas), "\n"); !strings.HasPrefix(lines[1], "exempt ") || !strings.HasPrefix(lines[len(lines)-1], "catch-all ") {
		t.Errorf("not in the order in which they are tried:\n%s", schemas)
	}
	expect.Contains(t, s.kubectl.run(t, "get", "prioritylevelconfigurations"), "NOMINALCONCURRENCYSHARES", "workload-low", "Exempt")
	s.kubectl.refuse(t, "", []string{"patch", "flowschema", "catch-all", "--type=merge", "-p", `{"spec":{"matchingPrecedence":9999}}`}, "spec of 'catch-all' must equal the fixed value")
}

// TestPolicy: a policy of the examples denies an object.
func TestPolicy(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for _, name := range []string{"00-namespace", "30-customresourcedefinition", "80-validatingadmissionpolicy", "81-validatingadmissionpolicybinding"} {
		s.kubectl.run(t, "apply", "-f", examplesDir+"/"+name+".yaml")
	}
	s.kubectl.run(t, "wait", "--for=condition=Established", "-f", widgetCRD)
	widget := func(color string) string {
		return "{apiVersion: example.com/v1, kind: Widget, metadata: {namespace: annex-examples, name: " + color + "}, spec: {color: " + color + "}}"
	}
	refusal := "ValidatingAdmissionPolicy 'no-red-widgets' with binding 'no-red-widgets' denied request: red is sold out"
	poll.UntilDone(t, "a red widget is refused", func() (bool, string) {
		got := s.kubectl.try(t, widget("red"), "apply", "--dry-run=server", "-f", "-")
		return got.code != 0 && strings.Contains(got.stderr, refusal), got.stdout + got.stderr
	})
	s.kubectl.refuse(t, widget("red"), []string{"apply", "-f", "-"}, refusal)
	expect.Contains(t, s.kubectl.feed(t, widget("green"), "apply", "-f", "-"), "created")
	expect.Contains(t, s.kubectl.run(t, "get", "api-extensions"), "no-red-widgets")
}
