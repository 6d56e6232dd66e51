// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	"github.com/annex-dev/annex/pkg/standalone/authorization"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

func TestValidateModes(t *testing.T) {
	t.Parallel()
	for modes, want := range map[string]string{
		"RBAC":                                "",
		"RBAC,Webhook,AlwaysDeny,AlwaysAllow": "",
		"":                                    "there is no authorizer",
		"RBAC,rbac":                           `there is no mode "rbac": use AlwaysAllow, AlwaysDeny, RBAC, Webhook`,
		"Node,RBAC":                           `there is no mode "Node"`,
		"RBAC,RBAC":                           "the mode RBAC is named twice",
	} {
		var list []string
		if modes != "" {
			list = strings.Split(modes, ",")
		}
		err := errors.Join(authorization.ValidateModes(list)...)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", modes, err, want)
		}
	}
}

func TestFileThatIsWrong(t *testing.T) {
	t.Parallel()
	webhook := startWebhook(t, "", "")
	good := withWebhook(webhook.kubeconfig(t), "Deny", "true")
	change := func(from, to string) string {
		if !strings.Contains(good, from) {
			t.Fatalf("the good file has no %q", from)
		}
		return strings.Replace(good, from, to, 1)
	}
	tests := map[string]struct{ data, want string }{
		"nothing":            {"", "authorizers: Required value"},
		"no authorizers":     {head, ":1: authorizers: Required value: at least one authorization mode must be defined"},
		"not YAML":           {head + "authorizers: a: b\n", ":3: mapping values are not allowed"},
		"another kind":       {"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n", "AuthorizationConfiguration"},
		"unknown kind":       {"apiVersion: v1\nkind: Pod\n", `:2: kind: there is no kind "Pod"`},
		"unknown type":       {change("type: RBAC", "type: Node"), `:15: authorizers[1].type: Unsupported value: "Node": supported values: "AlwaysAllow", "AlwaysDeny", "RBAC", "Webhook"`},
		"no type":            {change("type: RBAC", "type: ''"), ":15: authorizers[1].type: Required value"},
		"RBAC twice":         {good + "- {type: RBAC, name: again}\n", `:17: authorizers[2].type: Duplicate value: "RBAC"`},
		"name twice":         {change("name: rbac", "name: first"), `:16: authorizers[1].name: Duplicate value: "first"`},
		"strange name":       {change("name: first", "name: First_"), ":5: authorizers[0].name: Invalid value"},
		"another's name":     {change("name: rbac", "name: roles"), `:16: authorizers[1].name: Invalid value: "roles": must be "rbac" for the type RBAC`},
		"misspelled field":   {change("timeout:", "timeuot:"), ":7: authorizers[0].webhook.timeuot: unknown field"},
		"no duration":        {change("3s", "soon"), `:7: authorizers[0].webhook.timeout: time: invalid duration "soon"`},
		"timeout too long":   {change("3s", "31s"), ":7: authorizers[0].webhook.timeout: Invalid value"},
		"unknown policy":     {change("failurePolicy: Deny", "failurePolicy: Ignore"), ":12: authorizers[0].webhook.failurePolicy: Unsupported value"},
		"unknown version":    {change("subjectAccessReviewVersion: v1", "subjectAccessReviewVersion: v2"), ":10: authorizers[0].webhook.subjectAccessReviewVersion: Unsupported value"},
		"itself":             {change("type: KubeConfigFile", "type: InClusterConfig"), ":13: authorizers[0].webhook.connectionInfo.type: Invalid value: \"InClusterConfig\": a standalone annex would send reviews to itself"},
		"relative path":      {change("kubeConfigFile: /", "kubeConfigFile: "), ":13: authorizers[0].webhook.connectionInfo.kubeConfigFile: Invalid value"},
		"wrong CEL":          {change(`"true"`, `"request.nonsense"`), ":14: authorizers[0].webhook.matchConditions[0].expression: Invalid value"},
		"CEL that is no yes": {change(`"true"`, `"request.user"`), ":14: authorizers[0].webhook.matchConditions[0].expression: Invalid value"},
		"CEL twice":          {change(`[{expression: "true"}]`, `[{expression: "true"}, {expression: "true"}]`), ":14: authorizers[0].webhook.matchConditions[1].expression: Duplicate value"},
		"webhook for RBAC":   {good + "  webhook: {timeout: 3s}\n", ":17: authorizers[1].webhook: Invalid value"},
		"no webhook":         {head + "authorizers:\n- {type: Webhook, name: x}\n", ":4: authorizers[0].webhook: Required value"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := writeFile(t, test.data)
			_, err := authorization.New(authorization.Config{File: file})
			expect.ErrorLine(t, err, test.want, file+":")
		})
	}
	if _, err := authorization.New(authorization.Config{File: writeFile(t, good)}); err != nil {
		t.Errorf("the good file: %v", err)
	}
	if _, err := authorization.New(authorization.Config{File: "/nowhere.yaml"}); err == nil || !strings.Contains(err.Error(), "/nowhere.yaml") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// reloads returns how many reloads a server counted.
func reloads(t *testing.T, status string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	expect.NoError(t, err)
	for _, family := range families {
		if family.GetName() != "apiserver_authorization_config_controller_automatic_reloads_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "status" && label.GetValue() == status {
					return metric.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}

func TestReload(t *testing.T) {
	t.Parallel()
	rbac := head + "authorizers:\n- {type: RBAC, name: rbac}\n"
	file := writeFile(t, rbac)
	a := newAuthorizer(t, authorization.Config{File: file, ServerID: t.Name()})
	controllertest.Start(t, a.Run)

	until := func(what string, allowed bool, failures float64) {
		t.Helper()
		poll.Until(t, what, func() string {
			decision, _, err := a.Authorize(t.Context(), listing("bob"))
			if err != nil || (decision == authorizer.DecisionAllow) != allowed {
				return decision.String()
			}
			if got := reloads(t, "failure"); got < failures {
				return "too few failures are counted"
			}
			return ""
		})
	}
	until("only what RBAC allows", false, 0)
	replaceFile(t, file, head+"authorizers:\n- {type: AlwaysAllow, name: alwaysallow}\n")
	until("everything", true, 0)
	failures := reloads(t, "failure")
	replaceFile(t, file, head+"authorizers:\n- {type: Nonsense, name: nonsense}\n")
	until("a failure, and still everything", true, failures+1)
	replaceFile(t, file, rbac)
	until("only what RBAC allows, again", false, 0)
	// A reload is counted after it is in force.
	poll.Until(t, "two successes that are counted", func() string {
		if got := reloads(t, "success"); got < 2 {
			return fmt.Sprintf("%v are counted", got)
		}
		return ""
	})
}
