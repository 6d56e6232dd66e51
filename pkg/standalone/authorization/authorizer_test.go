// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization_test

import (
	"net/http"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/annex-dev/annex/pkg/standalone/authorization"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestModes(t *testing.T) {
	t.Parallel()
	webhook := startWebhook(t, "walter", "bob")
	asked := authorization.Webhook{KubeconfigFile: webhook.kubeconfig(t), Version: "v1"}
	const denied = "Everything is forbidden."
	tests := map[string]struct {
		modes []string
		// what each may, and the reason for the last
		alice, walter, bob authorizer.Decision
		reason             string
	}{
		"RBAC":                 {[]string{"RBAC"}, authorizer.DecisionAllow, authorizer.DecisionNoOpinion, authorizer.DecisionNoOpinion, "rbac: no role"},
		"Webhook":              {[]string{"Webhook"}, authorizer.DecisionNoOpinion, authorizer.DecisionAllow, authorizer.DecisionDeny, "the webhook knows bob"},
		"RBAC, Webhook":        {[]string{"RBAC", "Webhook"}, authorizer.DecisionAllow, authorizer.DecisionAllow, authorizer.DecisionDeny, "the webhook knows bob"},
		"AlwaysAllow":          {[]string{"AlwaysAllow"}, authorizer.DecisionAllow, authorizer.DecisionAllow, authorizer.DecisionAllow, ""},
		"AlwaysDeny":           {[]string{"AlwaysDeny"}, authorizer.DecisionNoOpinion, authorizer.DecisionNoOpinion, authorizer.DecisionNoOpinion, "alwaysdeny: " + denied},
		"AlwaysDeny and RBAC":  {[]string{"AlwaysDeny", "RBAC"}, authorizer.DecisionAllow, authorizer.DecisionNoOpinion, authorizer.DecisionNoOpinion, "alwaysdeny: " + denied + "\nrbac: no role"},
		"Webhook, AlwaysAllow": {[]string{"Webhook", "AlwaysAllow"}, authorizer.DecisionAllow, authorizer.DecisionAllow, authorizer.DecisionDeny, "the webhook knows bob"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAuthorizer(t, authorization.Config{Modes: test.modes, Webhook: asked})
			wants(t, a, listing("bob"), test.bob, test.reason)
			for user, want := range map[string]authorizer.Decision{"alice": test.alice, "walter": test.walter} {
				if decision, _, err := a.Authorize(t.Context(), listing(user)); err != nil || decision != want {
					t.Errorf("%s: %v, %v; want %v", user, decision, err, want)
				}
			}
			// Whatever the modes are.
			wants(t, a, listing("bob", "system:masters"), authorizer.DecisionAllow, "")
			wants(t, a, reading("bob", "/readyz"), authorizer.DecisionAllow, "")
			if decision, _, _ := a.Authorize(t.Context(), reading("bob", "/readyz/ping")); decision != test.bob {
				t.Errorf("a path below an open one: %v, want %v", decision, test.bob)
			}
		})
	}
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	webhook := startWebhook(t, "walter", "bob")
	const condition = "has(request.resourceAttributes) && request.resourceAttributes.resource == 'secrets'"
	a := newAuthorizer(t, authorization.Config{File: writeFile(t, withWebhook(webhook.kubeconfig(t), "Deny", condition))})

	wants(t, a, listing("walter"), authorizer.DecisionAllow, "the webhook knows walter")
	wants(t, a, listing("bob"), authorizer.DecisionDeny, "the webhook knows bob")
	wants(t, a, listing("carol"), authorizer.DecisionNoOpinion, "first: the webhook knows carol\nrbac: no role")
	wants(t, a, listing("alice"), authorizer.DecisionAllow, "")

	before := webhook.questions()
	wants(t, a, reading("walter", "/metrics"), authorizer.DecisionNoOpinion, "rbac: no role")
	if after := webhook.questions(); after != before {
		t.Errorf("the webhook was asked %d times although its condition was not met", after-before)
	}
	if spec := webhook.asked[0]; spec.User != "walter" || spec.ResourceAttributes.Resource != "secrets" || spec.ResourceAttributes.Namespace != "default" {
		t.Errorf("the webhook was asked %+v", spec)
	}
	webhook.answerWith(http.StatusForbidden)
	if decision, _, err := a.Authorize(t.Context(), listing("alice")); decision != authorizer.DecisionDeny || err == nil {
		t.Errorf("with failurePolicy Deny, a webhook that fails: %v, %v", decision, err)
	}
}

func TestWebhookWithoutOpinionWhenItFails(t *testing.T) {
	t.Parallel()
	webhook := startWebhook(t, "walter", "bob")
	webhook.answerWith(http.StatusForbidden)
	a := newAuthorizer(t, authorization.Config{File: writeFile(t, withWebhook(webhook.kubeconfig(t), "NoOpinion", "true"))})
	if decision, _, err := a.Authorize(t.Context(), listing("alice")); decision != authorizer.DecisionAllow || err != nil {
		t.Errorf("a user that RBAC allows: %v, %v", decision, err)
	}
	if decision, _, err := a.Authorize(t.Context(), listing("walter")); decision != authorizer.DecisionNoOpinion || err == nil {
		t.Errorf("a user that nothing else allows: %v, %v", decision, err)
	}
}

func TestRulesFor(t *testing.T) {
	t.Parallel()
	webhook := startWebhook(t, "walter", "bob")
	tests := map[string]struct {
		modes      []string
		rules      int
		incomplete bool
	}{
		"RBAC":             {[]string{"RBAC"}, 1, false},
		"AlwaysDeny":       {[]string{"AlwaysDeny"}, 0, false},
		"RBAC and Webhook": {[]string{"Webhook", "RBAC"}, 1, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAuthorizer(t, authorization.Config{Modes: test.modes, Webhook: authorization.Webhook{KubeconfigFile: webhook.kubeconfig(t), Version: "v1beta1"}})
			resources, paths, incomplete, _ := a.RulesFor(t.Context(), &user.DefaultInfo{Name: "alice"}, "default")
			if len(resources) != test.rules || len(paths) != test.rules || incomplete != test.incomplete {
				t.Errorf("%d and %d rules, incomplete %t; want %+v", len(resources), len(paths), incomplete, test)
			}
		})
	}
}

// TestWebhookThatCannotBeTrusted leaves the details to the tests of pkg/configfile/kubeconfig.
func TestWebhookThatCannotBeTrusted(t *testing.T) {
	t.Parallel()
	webhook := startWebhook(t, "walter", "bob")
	for name, test := range map[string]struct{ kubeconfig, want string }{
		"not there":     {"/nowhere/kubeconfig", "/nowhere/kubeconfig"},
		"not encrypted": {webhook.kubeconfig(t, func(c *clientcmdapi.Cluster) { c.Server = "http://127.0.0.1:1" }), "must begin with https://"},
		"CA is junk":    {webhook.kubeconfig(t, func(c *clientcmdapi.Cluster) { c.CertificateAuthorityData = []byte("x") }), "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := authorization.New(authorization.Config{Modes: []string{"Webhook"}, Webhook: authorization.Webhook{KubeconfigFile: test.kubeconfig, Version: "v1"}})
			expect.Error(t, err, test.want)
			file := writeFile(t, withWebhook(test.kubeconfig, "Deny", "true"))
			_, err = authorization.New(authorization.Config{File: file})
			expect.Error(t, err, file+":13: authorizers[0].webhook.connectionInfo.kubeConfigFile: ")
		})
	}
}
