// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
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
	contains(t, alice.run(t, "auth", "whoami"), "alice", "system:masters", "dev", "system:authenticated")
	contains(t, alice.run(t, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}", "--as=bob", "--as-group=system:masters"), "bob")
	contains(t, alice.run(t, "config", "current-context"), "alice@annex")
	contains(t, alice.run(t, "get", "namespaces"), "default")

	bob := s.kubectl
	bob.kubeconfig = filepath.Join(t.TempDir(), "bob.kubeconfig")
	printKubeconfig(t, bob.kubeconfig, "--data-dir="+s.dataDir, "--user=bob")
	contains(t, bob.run(t, "auth", "whoami"), "bob", "[system:authenticated]")
	bob.refuse(t, "", []string{"get", "secrets"}, "Forbidden", `User "bob"`)

	review := `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"nobodys"}}`
	contains(t, alice.feed(t, review, "create", "-o", "jsonpath={.status}", "-f", "-"), "invalid bearer token")
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
