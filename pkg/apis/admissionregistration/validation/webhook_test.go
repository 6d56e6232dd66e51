// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func rule(resources ...string) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: resources},
	}
}

func condition(name, expression string) admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{Name: name, Expression: expression}
}

func validHook() admissionregistrationv1.MutatingWebhook {
	return admissionregistrationv1.MutatingWebhook{
		Name:                    "hook.example.com",
		ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:8443/path")},
		Rules:                   []admissionregistrationv1.RuleWithOperations{rule("configmaps")},
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1"},
	}
}

func configuration(hooks ...admissionregistrationv1.MutatingWebhook) *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "hooks"}, Webhooks: hooks}
}

// asValidating is the same configuration of the other kind.
func asValidating(c *admissionregistrationv1.MutatingWebhookConfiguration) *admissionregistrationv1.ValidatingWebhookConfiguration {
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: c.ObjectMeta}
	for _, w := range c.Webhooks {
		validating.Webhooks = append(validating.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
			NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
			TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
		})
	}
	return validating
}

type mutatingHook = admissionregistrationv1.MutatingWebhook

func TestWebhooks(t *testing.T) {
	t.Parallel()
	rules := func(rules ...admissionregistrationv1.RuleWithOperations) func(*mutatingHook) {
		return func(w *mutatingHook) { w.Rules = rules }
	}
	tests := map[string]struct {
		change func(*mutatingHook)
		want   []string
	}{
		"valid":              {func(*mutatingHook) {}, nil},
		"name without a dot": {func(w *mutatingHook) { w.Name = "hook" }, []string{`webhooks[0].name: Invalid value: "hook": should be a domain with at least three segments`}},
		"no client":          {func(w *mutatingHook) { w.ClientConfig.URL = nil }, []string{"webhooks[0].clientConfig: Required value: exactly one of url or service is required"}},
		"two clients": {func(w *mutatingHook) { w.ClientConfig.Service = &admissionregistrationv1.ServiceReference{} },
			[]string{"webhooks[0].clientConfig: Required value: exactly one of url or service is required"}},
		"plain http":            {func(w *mutatingHook) { w.ClientConfig.URL = new("http://a/b") }, []string{"webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme"}},
		"a password in the URL": {func(w *mutatingHook) { w.ClientConfig.URL = new("https://u:p@a/b") }, []string{"webhooks[0].clientConfig.url: Invalid value: \"u:p\": user information is not permitted"}},
		"a query":               {func(w *mutatingHook) { w.ClientConfig.URL = new("https://a/b?c=d") }, []string{"webhooks[0].clientConfig.url: Invalid value: \"c=d\": query parameters are not permitted"}},
		"a Service": {func(w *mutatingHook) {
			w.ClientConfig = admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Name: "n", Namespace: "ns", Port: new(int32(443))}}
		}, nil},
		"a Service without a name, on no port": {func(w *mutatingHook) {
			w.ClientConfig = admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "ns", Port: new(int32(0))}}
		}, []string{"webhooks[0].clientConfig.service.name: Required value", "webhooks[0].clientConfig.service.port: Invalid value: 0"}},
		"failure policy":    {func(w *mutatingHook) { w.FailurePolicy = new(admissionregistrationv1.FailurePolicyType("Retry")) }, []string{`webhooks[0].failurePolicy: Unsupported value: "Retry": supported values: "Fail", "Ignore"`}},
		"match policy":      {func(w *mutatingHook) { w.MatchPolicy = new(admissionregistrationv1.MatchPolicyType("x")) }, []string{`webhooks[0].matchPolicy: Unsupported value: "x": supported values: "Equivalent", "Exact"`}},
		"no side effects":   {func(w *mutatingHook) { w.SideEffects = nil }, []string{"webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun"}},
		"some side effects": {func(w *mutatingHook) { w.SideEffects = new(admissionregistrationv1.SideEffectClassSome) }, []string{`webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"`}},
		"no timeout":        {func(w *mutatingHook) { w.TimeoutSeconds = new(int32(0)) }, []string{"webhooks[0].timeoutSeconds: Invalid value: 0: the timeout value must be between 1 and 30 seconds"}},
		"long timeout":      {func(w *mutatingHook) { w.TimeoutSeconds = new(int32(31)) }, []string{"webhooks[0].timeoutSeconds: Invalid value: 31"}},
		"reinvocation": {func(w *mutatingHook) {
			w.ReinvocationPolicy = new(admissionregistrationv1.ReinvocationPolicyType("Always"))
		}, []string{`webhooks[0].reinvocationPolicy: Unsupported value: "Always": supported values: "IfNeeded", "Never"`}},
		"namespace selector": {func(w *mutatingHook) {
			w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "-"}}
		}, []string{`webhooks[0].namespaceSelector.matchLabels: Invalid value: "-"`}},
		"object selector": {func(w *mutatingHook) {
			w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a/b/c": ""}}
		}, []string{`webhooks[0].objectSelector.matchLabels: Invalid value: "a/b/c"`}},
		"no review version": {func(w *mutatingHook) { w.AdmissionReviewVersions = nil }, []string{"webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1"}},
		"unknown review versions": {func(w *mutatingHook) { w.AdmissionReviewVersions = []string{"v2", "v2", "V"} }, []string{
			`webhooks[0].admissionReviewVersions[1]: Invalid value: "v2": duplicate version`, `webhooks[0].admissionReviewVersions[2]: Invalid value: "V"`,
			`webhooks[0].admissionReviewVersions: Invalid value: ["v2","v2","V"]: must include at least one of v1, v1beta1`}},

		"empty rule": {rules(admissionregistrationv1.RuleWithOperations{}), []string{
			"webhooks[0].rules[0].operations: Required", "webhooks[0].rules[0].apiGroups: Required", "webhooks[0].rules[0].apiVersions: Required", "webhooks[0].rules[0].resources: Required"}},
		"wildcards with others": {rules(admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{"*", "CREATE"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*", "a"}, APIVersions: []string{"v1", "*"}, Resources: []string{"*", "a"}},
		}), []string{
			"webhooks[0].rules[0].operations: Invalid value: [\"*\",\"CREATE\"]: if '*' is present, must not specify other operations",
			"webhooks[0].rules[0].apiGroups: Invalid value: [\"*\",\"a\"]: if '*' is present, must not specify other API groups",
			"webhooks[0].rules[0].apiVersions: Invalid value: [\"v1\",\"*\"]: if '*' is present, must not specify other API versions",
			"webhooks[0].rules[0].resources: Invalid value: [\"*\",\"a\"]: if '*' is present, must not specify other resources without subresources"}},
		"unknown operation, empty version, scope": {rules(admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{"PATCH"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{""}, Resources: []string{""}, Scope: new(admissionregistrationv1.ScopeType("x"))},
		}), []string{
			`webhooks[0].rules[0].operations[0]: Unsupported value: "PATCH": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"`,
			"webhooks[0].rules[0].apiVersions[0]: Required", "webhooks[0].rules[0].resources[0]: Required",
			`webhooks[0].rules[0].scope: Unsupported value: "x": supported values: "*", "Cluster", "Namespaced"`}},
		"subresources":                {rules(rule("a/*", "b/status", "*/scale", "c")), nil},
		"every subresource and one":   {rules(rule("a/*", "a/status")), []string{"webhooks[0].rules[0].resources[1]: Invalid value: \"a/status\": if 'a/*' is present, must not specify a/status"}},
		"a subresource of all and of": {rules(rule("*/status", "a/status")), []string{"webhooks[0].rules[0].resources[1]: Invalid value: \"a/status\": if '*/status' is present, must not specify a/status"}},
		"everything and more":         {rules(rule("*/*", "a")), []string{"webhooks[0].rules[0].resources: Invalid value: [\"*/*\",\"a\"]: if '*/*' is present, must not specify other resources"}},

		"conditions": {func(w *mutatingHook) {
			w.MatchConditions = []admissionregistrationv1.MatchCondition{condition("a", "request.name == 'x' && authorizer.group('').resource('pods').check('get').allowed()"), condition("example.com/b", "object.metadata.name != ''")}
		}, nil},
		"conditions that are wrong": {func(w *mutatingHook) {
			w.MatchConditions = []admissionregistrationv1.MatchCondition{condition("a", "true"), condition("a", "1"), condition("", " "), condition("no no", "nothing == 1"), condition("p", "params.x")}
		}, []string{
			`webhooks[0].matchConditions[1].expression: Invalid value: "1": must evaluate to bool but got int`,
			`webhooks[0].matchConditions[1].name: Duplicate value: "a"`,
			`webhooks[0].matchConditions[2].expression: Required`, `webhooks[0].matchConditions[2].name: Required`,
			`webhooks[0].matchConditions[3].expression: Invalid value: "nothing == 1": compilation failed: ERROR: <input>:1:1: undeclared reference to 'nothing'`,
			`webhooks[0].matchConditions[3].name: Invalid value: "no no"`,
			`webhooks[0].matchConditions[4].expression: Invalid value: "params.x": compilation failed: ERROR: <input>:1:1: undeclared reference to 'params'`}},
		"too many conditions": {func(w *mutatingHook) {
			for i := range 65 {
				w.MatchConditions = append(w.MatchConditions, condition("c"+strings.Repeat("x", i%50)+strings.Repeat("y", i/50), "true"))
			}
		}, []string{"webhooks[0].matchConditions: Too many: 65: must have at most 64 items"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hook := validHook()
			test.change(&hook)
			mutating := configuration(hook)
			expect.FieldErrors(t, ValidateMutatingWebhookConfiguration(mutating), test.want...)
			if name != "reinvocation" { // only mutating webhooks have it
				expect.FieldErrors(t, ValidateValidatingWebhookConfiguration(asValidating(mutating)), test.want...)
			}
		})
	}
}

func TestWebhookNames(t *testing.T) {
	t.Parallel()
	twice := configuration(validHook(), validHook())
	const want = `webhooks[1].name: Duplicate value: "hook.example.com"`
	expect.FieldErrors(t, ValidateMutatingWebhookConfiguration(twice), want)
	expect.FieldErrors(t, ValidateValidatingWebhookConfiguration(asValidating(twice)), want)
	nameless := configuration()
	nameless.Name = "A"
	expect.FieldErrors(t, ValidateMutatingWebhookConfiguration(nameless), `metadata.name: Invalid value: "A"`)
	expect.FieldErrors(t, ValidateNewName("hooks"))
	expect.FieldErrors(t, ValidateNewName("hooks.static.k8s.io"), `metadata.name: Invalid value: "hooks.static.k8s.io": names ending with ".static.k8s.io" are reserved`)
}

// What is stored may stay as it is, however it came there; what is new may not be
// like that.
func TestWebhookUpdates(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		stored func(*mutatingHook)
		more   func(*mutatingHook)
		// want are the errors without a stored object that tolerates them.
		want string
	}{
		"side effects": {func(w *mutatingHook) { w.SideEffects = new(admissionregistrationv1.SideEffectClassUnknown) }, nil,
			"webhooks[0].sideEffects: Unsupported value"},
		"review versions": {func(w *mutatingHook) { w.AdmissionReviewVersions = []string{"v2"} }, nil,
			"webhooks[0].admissionReviewVersions: Invalid value"},
		"selector": {func(w *mutatingHook) {
			w.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "In", Values: []string{"-"}}}}
		}, nil,
			"webhooks[0].objectSelector.matchExpressions[0].values[0]: Invalid value"},
		"the same conditions": {func(w *mutatingHook) {
			w.MatchConditions = []admissionregistrationv1.MatchCondition{condition("a", "gone.with == 'a release'")}
		}, nil, "webhooks[0].matchConditions[0].expression: Invalid value"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hook := validHook()
			test.stored(&hook)
			stored := configuration(hook)
			updated := stored.DeepCopy()
			updated.Labels = map[string]string{"a": "b"}
			expect.FieldErrors(t, ValidateMutatingWebhookConfigurationUpdate(updated, stored))
			expect.FieldErrors(t, ValidateValidatingWebhookConfigurationUpdate(asValidating(updated), asValidating(stored)))
			expect.FieldErrors(t, ValidateMutatingWebhookConfigurationUpdate(updated, configuration(validHook())), test.want)
			expect.FieldErrors(t, ValidateValidatingWebhookConfigurationUpdate(asValidating(updated), asValidating(configuration(validHook()))), test.want)
		})
	}
	twice := configuration(validHook(), validHook())
	expect.FieldErrors(t, ValidateMutatingWebhookConfigurationUpdate(twice, twice))
	expect.FieldErrors(t, ValidateMutatingWebhookConfigurationUpdate(twice, configuration(validHook())), "webhooks[1].name: Duplicate value")

	// A changed condition is validated again.
	hook := validHook()
	hook.MatchConditions = []admissionregistrationv1.MatchCondition{condition("a", "gone == 'a release'")}
	stored := configuration(hook)
	changed := stored.DeepCopy()
	changed.Webhooks[0].MatchConditions[0].Name = "b"
	expect.FieldErrors(t, ValidateMutatingWebhookConfigurationUpdate(changed, stored), "webhooks[0].matchConditions[0].expression: Invalid value")
}
