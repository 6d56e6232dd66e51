// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

const soundIssuer = `jwt:
- issuer: {url: https://login.example.com, audiences: [annex]}
  claimMappings:
    username: {claim: sub, prefix: ""}
`

func TestConfigurationRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		content string
		want    []string // FILE stands for the file
	}{
		"nothing":             {"", []string{"FILE:1: "}},
		"no YAML":             {header + "jwt: [\n", []string{"FILE:3: "}},
		"a list":              {"- a\n", []string{"FILE:1: must be a mapping"}},
		"no kind":             {"apiVersion: apiserver.config.k8s.io/v1\n", []string{"FILE:1: kind: is missing"}},
		"another kind":        {"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n", []string{"FILE:2: kind: Unsupported value", "AuthenticationConfiguration"}},
		"no such kind":        {"apiVersion: apiserver.config.k8s.io/v1\nkind: LoginConfiguration\n", []string{"FILE:2: kind: ", "LoginConfiguration"}},
		"no such version":     {"apiVersion: apiserver.config.k8s.io/v9\nkind: AuthenticationConfiguration\n", []string{"FILE:", "v9"}},
		"misspelt field":      {header + strings.Replace(soundIssuer, "claimMappings", "claimMapings", 1), []string{"FILE:5: jwt[0].claimMapings: unknown field"}},
		"field given twice":   {header + soundIssuer + soundIssuer, []string{"FILE:", "jwt"}},
		"wrong type":          {header + "jwt: yes\n", []string{"FILE:3: jwt: must be a list"}},
		"issuer without TLS":  {header + strings.Replace(soundIssuer, "https:", "http:", 1), []string{"FILE:4: jwt[0].issuer.url: ", "https"}},
		"issuer of our own":   {header + strings.Replace(soundIssuer, "login.example.com", "annex", 1), []string{"FILE:4: jwt[0].issuer.url: ", "https://annex"}},
		"issuer given twice":  {header + soundIssuer + strings.TrimPrefix(soundIssuer, "jwt:\n"), []string{"FILE:7: jwt[1].issuer.url: Duplicate value"}},
		"no audience":         {header + strings.Replace(soundIssuer, "[annex]", "[]", 1), []string{"FILE:4: jwt[0].issuer.audiences: Required value"}},
		"broken authority":    {header + strings.Replace(soundIssuer, "[annex]", "[annex], certificateAuthority: junk", 1), []string{"FILE:4: jwt[0].issuer.certificateAuthority: "}},
		"egress":              {header + strings.Replace(soundIssuer, "[annex]", "[annex], egressSelectorType: cluster", 1), []string{"FILE:4: jwt[0].issuer.egressSelectorType: ", "no egress selector"}},
		"no user name":        {header + "jwt:\n- issuer: {url: https://login.example.com, audiences: [annex]}\n", []string{"FILE:4: jwt[0].claimMappings.username: "}},
		"broken expression":   {header + strings.Replace(soundIssuer, `{claim: sub, prefix: ""}`, "{expression: 'claims.'}", 1), []string{"FILE:6: jwt[0].claimMappings.username.expression: ", "Syntax error"}},
		"expression of a sum": {header + soundIssuer + "  claimValidationRules: [{expression: '1 + 1'}]\n", []string{"FILE:7: jwt[0].claimValidationRules[0].expression: ", "must evaluate to bool"}},
		"anonymous anywhere":  {header + "anonymous: {enabled: true}\n", []string{"FILE:3: anonymous.conditions: Required value"}},
		"anonymous nowhere":   {header + "anonymous: {enabled: true, conditions: []}\n", []string{"FILE:3: anonymous.conditions: Required value"}},
		"anonymous and off":   {header + "anonymous: {enabled: false, conditions: [{path: /livez}]}\n", []string{"FILE:3: anonymous.conditions: "}},
		"no path":             {header + "anonymous:\n  enabled: true\n  conditions:\n  - path: /livez\n  - path: ''\n", []string{"FILE:7: anonymous.conditions[1].path: "}},
		"relative path":       {header + "anonymous:\n  enabled: true\n  conditions:\n  - path: livez\n", []string{"FILE:6: anonymous.conditions[0].path: "}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "authentication.yaml")
			writeConfig(t, path, test.content)
			_, err := NewStructured(StructuredOptions{Path: path, OwnIssuers: []string{"https://annex"}})
			if err == nil {
				t.Fatal("it is accepted")
			}
			for _, want := range test.want {
				if want = strings.ReplaceAll(want, "FILE", path); !strings.Contains(err.Error(), want) {
					t.Errorf("error does not contain %q: %v", want, err)
				}
			}
		})
	}
	if _, err := NewStructured(StructuredOptions{Path: "/no/authentication.yaml"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
