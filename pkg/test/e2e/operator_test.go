// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/process"
)

// operatorUser is the user name of the operator's service account.
const operatorUser = "system:serviceaccount:broadcasting:operator"

// TestOperator runs an unmodified operator on controller-runtime with the token and permissions
// of its service account.
func TestOperator(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	manifests := operatorManifests(t)
	s.kubectl.run(t, "apply", "-f", filepath.Join(manifests, "crd.yaml"), "-f", filepath.Join(manifests, "rbac.yaml"))
	s.kubectl.run(t, "wait", "--for=condition=Established", "crd/broadcasts.operator.example.com")
	kubeconfig := s.operatorKubeconfig(t)

	t.Run("its rights", func(t *testing.T) { testOperatorRights(t, s, kubeconfig) })

	first := startOperator(t, kubeconfig)
	s.kubectl.run(t, "apply", "-f", filepath.Join(manifests, "broadcast.yaml"))
	s.wantBroadcast(t, "True Copied left,right", "hello")
	leader := s.waitLeader(t, "")

	t.Run("what it applied", func(t *testing.T) { testOperatorApplied(t, s) })
	t.Run("what it may not do", func(t *testing.T) { testOperatorRefused(t, s) })

	second := startOperator(t, kubeconfig)
	if got := s.leader(t); got != leader {
		t.Errorf("the lease moved from %s to %s although the first holder runs", leader, got)
	}
	expect.NoError(t, first.Stop(poll.Timeout))
	s.waitLeader(t, leader)
	s.kubectl.run(t, "patch", "broadcast", "greeting", "-n", "broadcasting", "--type=merge", "-p", `{"spec":{"data":{"text":"hello again"},"namespaces":["right"]}}`)
	s.wantBroadcast(t, "True Copied right", "hello again")
	s.wantNoCopy(t, "left")

	// Only the operator removes the finalizer.
	expect.NoError(t, second.Stop(poll.Timeout))
	s.kubectl.run(t, "delete", "broadcast", "greeting", "-n", "broadcasting", "--wait=false")
	s.kubectl.run(t, "get", "configmap", "greeting", "-n", "right")
	deleted := s.kubectl.run(t, "get", "broadcast", "greeting", "-n", "broadcasting", "-o", "jsonpath={.metadata.finalizers} {.metadata.deletionTimestamp}")
	expect.Contains(t, deleted, `["operator.example.com/copies"] 2`)
	startOperator(t, kubeconfig)
	s.kubectl.run(t, "wait", "--for=delete", "broadcast/greeting", "-n", "broadcasting", "--timeout="+poll.Timeout.String())
	s.wantNoCopy(t, "right")
}

func operatorManifests(t *testing.T) string {
	t.Helper()
	root, err := process.ModuleRoot(t.Context())
	expect.NoError(t, err)
	return filepath.Join(root, "hack", "tools", "operator", "manifests")
}

// operatorKubeconfig writes a kubeconfig with a token of the service account.
func (s *server) operatorKubeconfig(t *testing.T) string {
	t.Helper()
	token := strings.TrimSpace(s.kubectl.run(t, "create", "token", "operator", "-n", "broadcasting", "--duration=1h"))
	config := clientcmdapi.NewConfig()
	config.Clusters["annex"] = &clientcmdapi.Cluster{Server: s.URL, CertificateAuthorityData: s.Clients.Config.CAData, CertificateAuthority: s.Clients.Config.CAFile}
	config.AuthInfos["operator"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["operator"] = &clientcmdapi.Context{Cluster: "annex", AuthInfo: "operator", Namespace: "broadcasting"}
	config.CurrentContext = "operator"
	path := filepath.Join(t.TempDir(), "operator.kubeconfig")
	expect.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}

func startOperator(t *testing.T, kubeconfig string) *process.Annex {
	t.Helper()
	program, err := process.Bin(t.Context(), "operator")
	expect.NoError(t, err)
	operator, err := process.StartCommand(exec.Command(program, "--kubeconfig="+kubeconfig, "--namespace=broadcasting", "--targets=left,right"))
	expect.NoError(t, err)
	t.Cleanup(func() {
		operator.Kill()
		if t.Failed() {
			t.Logf("log of operator %d:\n%s", operator.PID(), operator.Stderr())
		}
	})
	return operator
}

// leader returns the holder of the operator's lease.
func (s *server) leader(t *testing.T) string {
	t.Helper()
	return s.kubectl.try(t, "", "get", "lease", "broadcast-operator", "-n", "broadcasting", "-o", "jsonpath={.spec.holderIdentity}").stdout
}

// waitLeader waits for a leader different from the previous one.
func (s *server) waitLeader(t *testing.T, before string) (leader string) {
	t.Helper()
	poll.UntilDone(t, "a leader different from "+before, func() (bool, string) {
		leader = s.leader(t)
		return leader != "" && leader != before, leader
	})
	return leader
}

// wantBroadcast waits for the status of the Broadcast and the content of its copy in namespace
// right.
func (s *server) wantBroadcast(t *testing.T, status, text string) {
	t.Helper()
	const template = `{range .status.conditions[?(@.type=="Ready")]}{.status} {.reason}{end} {.status.copies[*]}`
	poll.UntilDone(t, "the Broadcast is "+status, func() (bool, string) {
		got := s.kubectl.try(t, "", "get", "broadcast", "greeting", "-n", "broadcasting", "-o", "jsonpath="+template)
		copied := s.kubectl.try(t, "", "get", "configmap", "greeting", "-n", "right", "-o", "jsonpath={.data.text}")
		saw := strings.ReplaceAll(got.stdout, " right", ",right")
		saw = strings.Replace(saw, "Copied,right", "Copied right", 1)
		return saw == status && copied.stdout == text, fmt.Sprintf("%s %s, copy %s %s", saw, got.stderr, copied.stdout, copied.stderr)
	})
}

func (s *server) wantNoCopy(t *testing.T, namespace string) {
	t.Helper()
	poll.UntilDone(t, "the copy in "+namespace+" is deleted", func() (bool, string) {
		got := s.kubectl.try(t, "", "get", "configmap", "greeting", "-n", namespace)
		return strings.Contains(got.stderr, "NotFound"), got.stdout + got.stderr
	})
}

func testOperatorRights(t *testing.T, s *server, kubeconfig string) {
	operator := kubectl{kubeconfig: kubeconfig, home: s.kubectl.home}
	if got := operator.run(t, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"); got != operatorUser {
		t.Errorf("it logs in as %q", got)
	}
	for question, want := range map[string]string{
		"patch configmaps -n left":                      "yes",
		"patch configmaps -n closed":                    "no",
		"get secrets -n left":                           "no",
		"update leases/broadcast-operator":              "yes",
		"update leases/another":                         "no",
		"patch broadcasts --subresource=status":         "yes",
		"create clusterrolebindings":                    "no",
		"delete broadcasts":                             "no",
		"get /metrics":                                  "no",
		"list broadcasts --all-namespaces":              "no",
		"impersonate serviceaccounts -n broadcasting":   "no",
		"create serviceaccounts --subresource=token":    "no",
		"create selfsubjectaccessreviews.authorization": "yes",
	} {
		got := operator.try(t, "", append([]string{"auth", "can-i"}, strings.Fields(question)...)...)
		if strings.TrimSpace(got.stdout) != want {
			t.Errorf("can-i %s: %s%s", question, got.stdout, got.stderr)
		}
	}
	list := operator.run(t, "auth", "can-i", "--list", "-n", "left")
	expect.Contains(t, list, "configmaps", "[get list watch create patch delete]")
	for _, unseen := range []string{"broadcasts", "secrets"} {
		if strings.Contains(list, unseen) {
			t.Errorf("can-i --list in left has %s:\n%s", unseen, list)
		}
	}
	operator.refuse(t, "", []string{"get", "secrets", "-n", "left"}, operatorUser, `cannot list resource "secrets"`, `in the namespace "left"`)
	operator.refuse(t, "", []string{"create", "rolebinding", "mine", "-n", "left", "--clusterrole=cluster-admin", "--serviceaccount=broadcasting:operator"}, `cannot create resource "rolebindings"`)
}

func testOperatorApplied(t *testing.T, s *server) {
	owner := s.kubectl.run(t, "get", "configmap", "greeting", "-n", "left", "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields[*].manager} {.metadata.managedFields[*].operation}")
	if owner != "broadcast-operator Apply" {
		t.Errorf("the copy is managed by %q", owner)
	}
	// Its caches receive changes of its copies by other clients.
	s.kubectl.run(t, "delete", "configmap", "greeting", "-n", "right")
	s.wantBroadcast(t, "True Copied left,right", "hello")
	s.kubectl.run(t, "patch", "configmap", "greeting", "-n", "right", "--type=merge", "-p", `{"data":{"text":"changed by hand"}}`)
	s.wantBroadcast(t, "True Copied left,right", "hello")
	poll.UntilDone(t, "an event", func() (bool, string) {
		events := s.kubectl.run(t, "get", "events", "-n", "broadcasting", "-o", "jsonpath={.items[*].reason}")
		return strings.Contains(events, "Copied"), events
	})
}

func testOperatorRefused(t *testing.T, s *server) {
	setNamespaces := func(namespaces string) {
		s.kubectl.run(t, "patch", "broadcast", "greeting", "-n", "broadcasting", "--type=merge", "-p", `{"spec":{"namespaces":`+namespaces+`}}`)
	}
	setNamespaces(`["left","right","closed"]`)
	s.wantBroadcast(t, "False Forbidden left,right", "hello")
	message := s.kubectl.run(t, "get", "broadcast", "greeting", "-n", "broadcasting", "-o", "jsonpath={.status.conditions[0].message}")
	expect.Contains(t, message, `configmaps "greeting" is forbidden: User "`+operatorUser+`" cannot patch resource "configmaps"`, `in the namespace "closed"`)
	s.kubectl.refuse(t, "", []string{"get", "configmap", "greeting", "-n", "closed"}, "NotFound")
	setNamespaces(`["left","right"]`)
	s.wantBroadcast(t, "True Copied left,right", "hello")
}
