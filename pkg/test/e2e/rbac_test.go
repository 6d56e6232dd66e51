// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/poll"
)

// TestRBACKubectl grants permissions with kubectl's commands.
func TestRBACKubectl(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	const namespace = "rbac-team"
	s.kubectl.run(t, "create", "namespace", namespace)
	carol := s.kubectl
	carol.kubeconfig = filepath.Join(t.TempDir(), "carol.kubeconfig")
	printKubeconfig(t, carol.kubeconfig, "--data-dir="+s.dataDir, "--user=carol", "--group=rbac-watchers")
	here := func(args ...string) []string { return append(args, "-n", namespace) }

	carol.refuse(t, "", here("get", "configmaps"), "Forbidden",
		`configmaps is forbidden: User "carol" cannot list resource "configmaps" in API group "" in the namespace "rbac-team"`)
	s.kubectl.run(t, here("create", "role", "reader", "--verb=get,list", "--resource=configmaps,secrets")...)
	s.kubectl.run(t, here("create", "rolebinding", "readers", "--role=reader", "--user=carol")...)
	s.kubectl.run(t, here("create", "rolebinding", "keepers", "--clusterrole=admin", "--serviceaccount="+namespace+":keeper")...)
	s.kubectl.run(t, "create", "clusterrole", "rbac-stores", "--verb=get", "--verb=list", "--resource=stores.hosting.annex.dev")
	s.kubectl.run(t, "create", "clusterrole", "rbac-metrics", "--verb=get", "--non-resource-url=/metrics")
	s.kubectl.run(t, "create", "clusterrole", "rbac-all", "--aggregation-rule=rbac-test=yes")
	s.kubectl.run(t, "create", "clusterrolebinding", "rbac-stores", "--clusterrole=rbac-stores", "--group=rbac-watchers")

	poll.UntilDone(t, "carol's rights", func() (bool, string) {
		mine := carol.try(t, "", here("get", "configmaps,secrets")...)
		stores := carol.try(t, "", "get", "stores")
		return mine.code == 0 && stores.code == 0, mine.stderr + stores.stderr
	})
	for question, want := range map[string]string{
		"get configmaps": "yes", "list secrets": "yes", "delete secrets": "no", "create roles": "no", "get stores": "yes", "get /metrics": "no", "get /apis/": "yes",
	} {
		if got := strings.TrimSpace(carol.try(t, "", here(append([]string{"auth", "can-i"}, strings.Fields(question)...)...)...).stdout); got != want {
			t.Errorf("can carol %s? %s, want %s", question, got, want)
		}
	}
	contains(t, carol.run(t, here("auth", "can-i", "--list")...), "configmaps", "stores.hosting.annex.dev", "selfsubjectreviews")

	contains(t, s.kubectl.run(t, here("get", "rolebindings", "-o", "wide")...), "ROLE", "USERS", "Role/reader", "carol", "ClusterRole/admin", "rbac-team/keeper")
	contains(t, s.kubectl.run(t, "get", "clusterrolebindings", "rbac-stores", "-o", "wide"), "ClusterRole/rbac-stores", "rbac-watchers")
	contains(t, s.kubectl.run(t, here("get", "role", "reader")...), "NAME", "CREATED AT", "reader")
	contains(t, s.kubectl.run(t, here("describe", "role", "reader")...), "configmaps", "[get list]")
	s.kubectl.run(t, here("set", "subject", "rolebinding", "readers", "--group=rbac-readers")...)
	contains(t, s.kubectl.run(t, here("describe", "rolebinding", "readers")...), "carol", "rbac-readers")

	// The keeper has the role admin, and may grant no more than that.
	keeper := func(args ...string) []string {
		return append(here(args...), "--as=system:serviceaccount:"+namespace+":keeper", "--as-group=system:serviceaccounts", "--as-group=system:authenticated")
	}
	poll.UntilDone(t, "the keeper's permissions", func() (bool, string) {
		result := s.kubectl.try(t, "", keeper("create", "role", "kept", "--verb=get", "--resource=secrets")...)
		return result.code == 0, result.stderr
	})
	s.kubectl.refuse(t, "", keeper("create", "role", "much", "--verb=*", "--resource=*.*"), "attempting to grant RBAC permissions not currently held")
	s.kubectl.refuse(t, "", keeper("create", "rolebinding", "much", "--clusterrole=cluster-admin", "--user=carol"), "not currently held", `{APIGroups:["*"], Resources:["*"], Verbs:["*"]}`)
}

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

// TestRBACReconcile runs kubectl auth reconcile: it adds missing permissions, and recreates
// immutable objects.
func TestRBACReconcile(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	reconcile := func(manifest string, args ...string) string {
		return s.kubectl.feed(t, manifest, append([]string{"auth", "reconcile", "-f", "-"}, args...)...)
	}
	contains(t, reconcile(reconciled), "clusterrole.rbac.authorization.k8s.io/rbac-reconciled reconciled", "clusterrolebinding.rbac.authorization.k8s.io/rbac-reconciled reconciled")
	s.kubectl.run(t, "patch", "clusterrole", "rbac-reconciled", "--type=json", "-p", `[{"op":"replace","path":"/rules/0/verbs","value":["list","watch"]}]`)
	reconcile(reconciled)
	contains(t, s.kubectl.run(t, "get", "clusterrole", "rbac-reconciled", "-o", "jsonpath={.rules[*].verbs}"), "get", "list", "watch")
	reconcile(reconciled, "--remove-extra-permissions")
	if got := s.kubectl.run(t, "get", "clusterrole", "rbac-reconciled", "-o", "jsonpath={.rules[*].verbs}"); got != `["get","list"]` {
		t.Errorf("verbs %s after extra permissions were removed", got)
	}
	other := strings.ReplaceAll(reconciled, "kind: ClusterRole, name: rbac-reconciled", "kind: ClusterRole, name: view")
	s.kubectl.refuse(t, other, []string{"apply", "-f", "-"}, "cannot change roleRef")
	reconcile(other)
	contains(t, s.kubectl.run(t, "get", "clusterrolebinding", "rbac-reconciled"), "ClusterRole/view")
}
