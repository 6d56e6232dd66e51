// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package configfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

const usable = `apiVersion: v1
kind: Config
clusters:
- name: webhook
  cluster:
    server: https://127.0.0.1:1
users:
- name: annex
  user:
    token: secret
contexts:
- name: webhook
  context:
    cluster: webhook
    user: annex
current-context: webhook
`

func TestLoadKubeconfig(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		replace, by string
		want        string // after the file; empty if it is usable
	}{
		"usable":              {"", "", ""},
		"without a user":      {"    user: annex\n", "", ""},
		"without a version":   {"apiVersion: v1\nkind: Config\n", "", ""},
		"empty":               {usable, "", ": current-context: Required value: it selects the server"},
		"not YAML":            {"clusters:\n", "clusters: a: b\n", ":3: mapping values are not allowed in this context"},
		"unknown field":       {"    server:", "    sever:", `:6: clusters[0].cluster.sever: unknown field`},
		"list for a mapping":  {"    token: secret", "    token: [secret]", ":10: users[0].user.token: must be a string, not a list"},
		"another kind":        {"kind: Config", "kind: Pod", `:2: kind: there is no kind "Pod" of apiVersion "v1" that could be used here`},
		"no current context":  {"current-context: webhook\n", "", ":1: current-context: Required value: it selects the server"},
		"unknown context":     {"current-context: webhook", "current-context: other", `:16: current-context: Not found: "other"`},
		"unknown cluster":     {"    cluster: webhook", "    cluster: other", `:14: contexts[0].context.cluster: Not found: "other"`},
		"unknown user":        {"    user: annex", "    user: other", `:15: contexts[0].context.user: Not found: "other"`},
		"no server":           {"    server: https://127.0.0.1:1", "    server: ''", ":6: clusters[0].cluster.server: Required value: the URL of the webhook"},
		"not encrypted":       {"https:", "http:", `:6: clusters[0].cluster.server: Invalid value: "http://127.0.0.1:1": must begin with https://`},
		"not verified":        {"    server:", "    insecure-skip-tls-verify: yes\n    server:", ":6: clusters[0].cluster.insecure-skip-tls-verify: Forbidden: any server could answer as the webhook"},
		"authority not there": {"    server:", "    certificate-authority: /nowhere.crt\n    server:", "unable to read certificate-authority /nowhere.crt"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "kubeconfig")
			expect.NoError(t, os.WriteFile(path, []byte(strings.Replace(usable, test.replace, test.by, 1)), 0o600))
			_, err := LoadKubeconfig(path)
			if (err == nil) != (test.want == "") {
				t.Fatalf("got %v, want %q", err, test.want)
			}
			if err != nil && (!strings.HasPrefix(err.Error(), path+":") || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret")) {
				t.Errorf("got  %v\nwant %s%s", err, path, test.want)
			}
		})
	}
	if _, err := LoadKubeconfig("/nowhere.kubeconfig"); err == nil || !strings.Contains(err.Error(), "/nowhere.kubeconfig") {
		t.Errorf("a file that is not there: %v", err)
	}
}
