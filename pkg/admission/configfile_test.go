// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

const head = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
`

// In want, FILE and DIR stand for the file and its directory.
func TestCheckConfigFile(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		file string
		// want is the start of the error, empty for none.
		want string
	}{
		"nothing configured": {strings.Replace(head, "plugins:", "plugins: []", 1), ""},
		"quota": {head + `- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - {resource: configmaps, matchContains: [count/configmaps]}
`, ""},
		"credentials": {head + `- name: ValidatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: DIR/credentials}
`, ""},
		"policy plugin":        {head + "- name: MutatingAdmissionPolicy\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: MutatingAdmissionPolicyConfiguration}\n", ""},
		"no YAML":              {"a: b\n\nc: d: e\n", "FILE:3: mapping values are not allowed"},
		"unknown kind":         {"apiVersion: apiserver.config.k8s.io/v1\nkind: AuditPolicy\n", `FILE:2: kind: there is no kind "AuditPolicy"`},
		"unexpected kind":      {"apiVersion: apiserver.config.k8s.io/v1beta1\n\nkind: AuthorizationConfiguration\n", `FILE:3: kind: Unsupported value`},
		"no kind":              {"plugins: []\n", "FILE:1: kind: is missing"},
		"unknown field":        {head + "- name: ResourceQuota\n  pth: x\n", "FILE:5: plugins[0].pth: unknown field"},
		"unknown plugin":       {head + "- name: ResourceQuota\n- name: PodSecurity\n", `FILE:5: plugins[1].name: Unsupported value: "PodSecurity": supported values: "NamespaceLifecycle"`},
		"duplicate plugin":     {head + "- name: ResourceQuota\n- name: ResourceQuota\n", `FILE:5: plugins[1].name: Duplicate value: "ResourceQuota"`},
		"nothing to configure": {head + "- name: NamespaceLifecycle\n  path: x\n", "FILE:4: plugins[0].name: Forbidden: this plugin has no configuration"},
		"configured twice":     {head + "- name: ResourceQuota\n  path: x\n  configuration: {}\n", "FILE:5: plugins[0].path: Forbidden"},
		"missing file":         {head + "- name: ResourceQuota\n  path: missing.yaml\n", `FILE:5: plugins[0].path: Invalid value: "missing.yaml": open DIR/missing.yaml: no such file`},
		"unknown field inside": {head + `- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: configmaps
      matches: [a]
`, "FILE:10: plugins[0].configuration.limitedResources[0].matches: "},
		"missing field inside": {head + `- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - matchContains: [a]
`, "FILE:9: plugins[0].configuration.limitedResources[0].resource: Required value"},
		"unknown kind inside":             {head + "- name: ResourceQuota\n  configuration:\n    apiVersion: v1\n    kind: Pod\n", "FILE:7: plugins[0].configuration.kind: "},
		"configuration of another plugin": {head + "- name: ValidatingAdmissionPolicy\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n    kind: MutatingAdmissionPolicyConfiguration\n", "FILE:5: plugins[0].configuration: Invalid value: "},
		"manifests":                       {head + "- name: ValidatingAdmissionPolicy\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n    kind: ValidatingAdmissionPolicyConfiguration\n    staticManifestsDir: DIR\n", "FILE:8: plugins[0].configuration.staticManifestsDir: Forbidden: annex reads policies and webhooks from its API only"},
		"missing credentials":             {head + "- name: MutatingAdmissionWebhook\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n    kind: WebhookAdmissionConfiguration\n    kubeConfigFile: /missing\n", "FILE:8: plugins[0].configuration.kubeConfigFile: Invalid value: \"/missing\": open /missing"},
		"invalid credentials":             {head + "- name: MutatingAdmissionWebhook\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n    kind: WebhookAdmissionConfiguration\n    kubeConfigFile: DIR/broken\n", "FILE:8: plugins[0].configuration.kubeConfigFile: Invalid value: \"DIR/broken\": DIR/broken:5: users[0].user.tokn: unknown field"},
		"error in the referenced file":    {head + "- name: ResourceQuota\n  path: quota.yaml\n", "DIR/quota.yaml:4: limitedResources[0].matches: unknown field"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "admission.yaml")
			for file, content := range map[string]string{
				"admission.yaml": strings.ReplaceAll(test.file, "DIR", dir),
				"credentials":    "apiVersion: v1\nkind: Config\nusers:\n- name: '*.example.com'\n  user: {token: t}\n",
				"broken":         "apiVersion: v1\nkind: Config\nusers:\n- name: '*.example.com'\n  user: {tokn: t}\n",
				"quota.yaml":     "apiVersion: apiserver.config.k8s.io/v1\nkind: ResourceQuotaConfiguration\nlimitedResources:\n- {resource: a, matches: b}\n",
			} {
				expect.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600))
			}
			err := CheckConfigFile(path)
			want := strings.NewReplacer("FILE", path, "DIR", dir).Replace(test.want)
			switch {
			case want == "" && err != nil:
				t.Errorf("unexpected error: %v", err)
			case want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)):
				t.Errorf("got\n%v\nwant it to start with\n%s", err, want)
			}
		})
	}
	expect.Succeeds(t, CheckConfigFile(""), "without a file")
	if err := CheckConfigFile("/missing/admission.yaml"); err == nil {
		t.Error("no error for a missing file")
	}
}
