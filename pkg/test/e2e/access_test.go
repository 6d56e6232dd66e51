// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// TestAuthenticationKubeconfig gives a second user access with the output of `annex kubeconfig`,
// while annex runs.
func TestAuthenticationKubeconfig(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	alice := s.kubectl
	alice.kubeconfig = filepath.Join(t.TempDir(), "alice.kubeconfig")
	printKubeconfig(t, alice.kubeconfig, "--data-dir="+s.dataDir, "--user=alice", "--group=system:masters", "--group=dev", "--ttl=10m")
	info, err := os.Stat(alice.kubeconfig)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig has %v, %v", info.Mode(), err)
	}
	expect.Contains(t, alice.run(t, "auth", "whoami"), "alice", "system:masters", "dev", "system:authenticated")
	expect.Contains(t, alice.run(t, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}", "--as=bob", "--as-group=system:masters"), "bob")
	expect.Contains(t, alice.run(t, "config", "current-context"), "alice@annex")
	expect.Contains(t, alice.run(t, "get", "namespaces"), "default")

	bob := s.kubectl
	bob.kubeconfig = filepath.Join(t.TempDir(), "bob.kubeconfig")
	printKubeconfig(t, bob.kubeconfig, "--data-dir="+s.dataDir, "--user=bob")
	expect.Contains(t, bob.run(t, "auth", "whoami"), "bob", "[system:authenticated]")
	bob.refuse(t, "", []string{"get", "secrets"}, "Forbidden", `User "bob"`)

	review := `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"nobodys"}}`
	expect.Contains(t, alice.feed(t, review, "create", "-o", "jsonpath={.status}", "-f", "-"), "invalid bearer token")
}

// printKubeconfig runs `annex kubeconfig` with its output redirected to a file.
func printKubeconfig(t *testing.T, path string, args ...string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	expect.NoError(t, err)
	defer file.Close()
	var stderr bytes.Buffer
	command := exec.CommandContext(t.Context(), programs.annex, append([]string{"kubeconfig"}, args...)...)
	command.Stdout, command.Stderr = file, &stderr
	if err := command.Run(); err != nil {
		t.Fatalf("annex kubeconfig %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
}

// TestTokens requests tokens with all options of kubectl. Their use and expiry are tested by
// docs/authentication.md, which TestDocs types.
func TestTokens(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	namespace := s.namespace(t)
	s.kubectl.run(t, "create", "serviceaccount", "robot", "-n", namespace)
	s.kubectl.run(t, "create", "secret", "generic", "lock", "-n", namespace)
	create := []string{"create", "token", "robot", "-n", namespace}

	asked := time.Now()
	raw := s.kubectl.run(t, append(create, "--audience=vault", "--audience=registry", "--duration=2h",
		"--bound-object-kind=Secret", "--bound-object-name=lock", "-o", "json")...)
	var answer authenticationv1.TokenRequest
	expect.NoError(t, json.Unmarshal([]byte(raw), &answer), "%s", raw)
	if left := answer.Status.ExpirationTimestamp.Sub(asked); left < 2*time.Hour-time.Second || left > 2*time.Hour+poll.Timeout {
		t.Errorf("valid for %s, want two hours", left)
	}
	if !slices.Equal(answer.Spec.Audiences, []string{"vault", "registry"}) {
		t.Errorf("audiences %q", answer.Spec.Audiences)
	}
	if bound := answer.Spec.BoundObjectRef; bound == nil || bound.Kind != "Secret" || bound.Name != "lock" {
		t.Errorf("bound to %v", bound)
	}

	s.kubectl.refuse(t, "", append(create, "--duration=1m"), "spec.expirationSeconds", "10 minutes")
	s.kubectl.refuse(t, "", append(create, "--bound-object-kind=Pod", "--bound-object-name=web"), "annex has no Pods")
	s.kubectl.refuse(t, "", append(create, "--bound-object-kind=Node", "--bound-object-name=worker"), "annex has no Nodes")
	s.kubectl.refuse(t, "", append(create, "--bound-object-kind=Secret", "--bound-object-name=absent"), `secrets "absent" not found`)
	s.kubectl.refuse(t, "", append(create, "--bound-object-kind=Secret", "--bound-object-name=lock", "--bound-object-uid=other"), "UID")
	s.kubectl.refuse(t, "", []string{"create", "token", "missing", "-n", namespace}, `serviceaccounts "missing" not found`)
}

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
	expect.Contains(t, carol.run(t, here("auth", "can-i", "--list")...), "configmaps", "stores.hosting.annex.dev", "selfsubjectreviews")

	expect.Contains(t, s.kubectl.run(t, here("get", "rolebindings", "-o", "wide")...), "ROLE", "USERS", "Role/reader", "carol", "ClusterRole/admin", "rbac-team/keeper")
	expect.Contains(t, s.kubectl.run(t, "get", "clusterrolebindings", "rbac-stores", "-o", "wide"), "ClusterRole/rbac-stores", "rbac-watchers")
	expect.Contains(t, s.kubectl.run(t, here("get", "role", "reader")...), "NAME", "CREATED AT", "reader")
	expect.Contains(t, s.kubectl.run(t, here("describe", "role", "reader")...), "configmaps", "[get list]")
	s.kubectl.run(t, here("set", "subject", "rolebinding", "readers", "--group=rbac-readers")...)
	expect.Contains(t, s.kubectl.run(t, here("describe", "rolebinding", "readers")...), "carol", "rbac-readers")

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
	expect.Contains(t, reconcile(reconciled), "clusterrole.rbac.authorization.k8s.io/rbac-reconciled reconciled", "clusterrolebinding.rbac.authorization.k8s.io/rbac-reconciled reconciled")
	s.kubectl.run(t, "patch", "clusterrole", "rbac-reconciled", "--type=json", "-p", `[{"op":"replace","path":"/rules/0/verbs","value":["list","watch"]}]`)
	reconcile(reconciled)
	expect.Contains(t, s.kubectl.run(t, "get", "clusterrole", "rbac-reconciled", "-o", "jsonpath={.rules[*].verbs}"), "get", "list", "watch")
	reconcile(reconciled, "--remove-extra-permissions")
	if got := s.kubectl.run(t, "get", "clusterrole", "rbac-reconciled", "-o", "jsonpath={.rules[*].verbs}"); got != `["get","list"]` {
		t.Errorf("verbs %s after extra permissions were removed", got)
	}
	other := strings.ReplaceAll(reconciled, "kind: ClusterRole, name: rbac-reconciled", "kind: ClusterRole, name: view")
	s.kubectl.refuse(t, other, []string{"apply", "-f", "-"}, "field is immutable")
	reconcile(other)
	expect.Contains(t, s.kubectl.run(t, "get", "clusterrolebinding", "rbac-reconciled"), "ClusterRole/view")
}

// TestQuotaKubectl limits a namespace with kubectl's own commands for it.
func TestQuotaKubectl(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	const namespace = "quota-team"
	s.kubectl.run(t, "create", "namespace", namespace)
	here := func(args ...string) []string { return append(args, "-n", namespace) }

	s.kubectl.refuse(t, "", here("create", "quota", "objects", "--hard=widgets=1"), "must be a standard resource for quota")
	s.kubectl.refuse(t, "", here("create", "quota", "objects", "--hard=secrets=1", "--scopes=BestEffort"), "unsupported scope applied to resource")
	expect.Contains(t, s.kubectl.run(t, here("create", "quota", "objects", "--hard=secrets=1,count/configmaps=2")...), "resourcequota/objects created")
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
	expect.Contains(t, s.kubectl.run(t, here("get", "quota")...), "REQUEST", "count/configmaps: 1/2, secrets: 0/1")
	expect.Contains(t, s.kubectl.run(t, here("describe", "namespace", namespace)...), "Resource Quotas", "count/configmaps")
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
	expect.Contains(t, s.kubectl.run(t, "get", "--raw", "/debug/api_priority_and_fairness/dump_priority_levels"), "PriorityLevelName", "catch-all")
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
