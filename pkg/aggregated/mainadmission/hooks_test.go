// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package mainadmission

import (
	"context"
	"errors"
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// annex is its account.
const annex = "system:serviceaccount:annex-system:annex"

var (
	widgets = Resource{GroupResource: schema.GroupResource{Group: "example.com", Resource: "widgets"}, Kind: "Widget", Namespaced: true, Versions: []string{"v1", "v2"}}
	gadgets = Resource{GroupResource: schema.GroupResource{Group: "example.com", Resource: "gadgets"}, Kind: "Gadget", Versions: []string{"v1"}}
	both    = []Resource{widgets, gadgets}
)

type (
	rule      = admissionregistrationv1.RuleWithOperations
	namedRule = admissionregistrationv1.NamedRuleWithOperations
	condition = admissionregistrationv1.MatchCondition
	webhook   = admissionregistrationv1.ValidatingWebhook
)

// newRule is for CREATE, and for one group, version and resource.
func newRule(group, version, resource string, changes ...func(*rule)) rule {
	r := rule{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}},
	}
	for _, change := range changes {
		change(&r)
	}
	return r
}

func configuration(name string, webhooks ...webhook) *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "7"}, Webhooks: webhooks}
}

func TestMatching(t *testing.T) {
	t.Parallel()
	on := func(operation admissionregistrationv1.OperationType) func(*rule) {
		return func(r *rule) { r.Operations = []admissionregistrationv1.OperationType{operation} }
	}
	scope := func(of admissionregistrationv1.ScopeType) func(*rule) { return func(r *rule) { r.Scope = &of } }
	excluding := func(expression string) webhook {
		return webhook{Rules: []rule{newRule("*", "*", "*")}, MatchConditions: []condition{{Name: "all", Expression: "true"}, {Name: "x", Expression: expression}}}
	}
	all := []string{"gadgets.example.com", "widgets.example.com"}
	for name, test := range map[string]struct {
		webhook webhook
		want    []string
	}{
		"the temporary version":       {webhook{Rules: []rule{newRule("example.com", "*", "widgets")}, MatchPolicy: new(admissionregistrationv1.Exact)}, all[1:]},
		"exactly another version":     {webhook{Rules: []rule{newRule("example.com", "v1", "widgets")}, MatchPolicy: new(admissionregistrationv1.Exact)}, nil},
		"an equivalent version":       {webhook{Rules: []rule{newRule("example.com", "v2", "*")}, MatchPolicy: new(admissionregistrationv1.Equivalent)}, all[1:]},
		"equivalent by default":       {webhook{Rules: []rule{newRule("example.com", "v1", "*")}}, all},
		"a version that is not there": {webhook{Rules: []rule{newRule("example.com", "v3", "*")}}, nil},
		"everything":                  {webhook{Rules: []rule{newRule("*", "*", "*/*")}}, all},
		"no rules":                    {webhook{}, nil},
		"another group":               {webhook{Rules: []rule{newRule("internal.example.com", "*", "*")}}, nil},
		"a subresource":               {webhook{Rules: []rule{newRule("example.com", "*", "*/status")}}, nil},
		"updates":                     {webhook{Rules: []rule{newRule("example.com", "*", "*", on(admissionregistrationv1.Update))}}, all},
		"deletions":                   {webhook{Rules: []rule{newRule("example.com", "*", "*", on(admissionregistrationv1.Delete))}}, all},
		"connections":                 {webhook{Rules: []rule{newRule("example.com", "*", "*", on(admissionregistrationv1.Connect))}}, nil},
		"the namespaced":              {webhook{Rules: []rule{newRule("example.com", "*", "*", scope(admissionregistrationv1.NamespacedScope))}}, all[1:]},
		"the cluster-scoped":          {webhook{Rules: []rule{newRule("example.com", "*", "*", scope(admissionregistrationv1.ClusterScope))}}, all[:1]},
		"selectors": {webhook{Rules: []rule{newRule("*", "*", "*")}, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"c": "d"}}}, all},
		"excludes the account":       {excluding(`request.userInfo.username != "` + annex + `"`), nil},
		"excludes its namespace":     {excluding(`!("system:serviceaccounts:annex-system" in request.userInfo.groups)`), nil},
		"excludes another account":   {excluding(`request.userInfo.username != "system:serviceaccount:kube-system:annex"`), all},
		"excludes one resource":      {excluding(`request.resource.resource != "gadgets"`), all[1:]},
		"excludes some objects":      {excluding(`has(object.spec.color)`), all},
		"excludes some of annex's":   {excluding(`object.metadata.name != "a" || request.userInfo.username != "` + annex + `"`), all},
		"excludes annex, whatever":   {excluding(`object.metadata.name == "a" && request.userInfo.username != "` + annex + `"`), nil},
		"asks the authorizer":        {excluding(`authorizer.group("example.com").resource("widgets").check("escape").allowed()`), all},
		"an expression with a fault": {excluding(`1 +`), all},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.webhook.Name = "deny.example.org"
			hooks, err := Read(t.Context(), fake.NewClientset(configuration("hooks", test.webhook)))
			expect.NoError(t, err)
			expect.Equal(t, test.want, matched(hooks)["ValidatingWebhookConfiguration hooks (deny.example.org)"])
		})
	}
}

// matched returns the resources of each hook that matches, by its name.
func matched(hooks []Hook) map[string][]string {
	found := map[string][]string{}
	for _, match := range Matching(hooks, Account(annex), both) {
		found[match.String()] = match.Resources
	}
	return found
}

func policy(name string, rules ...namedRule) *admissionregistrationv1.ValidatingAdmissionPolicy {
	return &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "7"},
		Spec:       admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: rules}},
	}
}

func binding(of string, action admissionregistrationv1.ValidationAction, matches *admissionregistrationv1.MatchResources) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s", of, action)},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: of, MatchResources: matches, ValidationActions: []admissionregistrationv1.ValidationAction{action},
		},
	}
}

func TestMatchingPolicies(t *testing.T) {
	t.Parallel()
	every := namedRule{RuleWithOperations: newRule("example.com", "v1", "*")}
	one := namedRule{ResourceNames: []string{"one"}, RuleWithOperations: every.RuleWithOperations}
	only := func(resource string) *admissionregistrationv1.MatchResources {
		return &admissionregistrationv1.MatchResources{ResourceRules: []namedRule{{RuleWithOperations: newRule("*", "*", resource)}}}
	}
	except := func(name string, excluded namedRule) *admissionregistrationv1.ValidatingAdmissionPolicy {
		p := policy(name, every)
		p.Spec.MatchConstraints.ExcludeResourceRules = []namedRule{excluded}
		return p
	}
	mutating := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "mutates"}}
	mutating.Spec.MatchConstraints = only("gadgets")
	hooks, err := Read(t.Context(), fake.NewClientset(
		policy("denies", every), binding("denies", admissionregistrationv1.Deny, nil), policy("unbound", every),
		policy("warns", every), binding("warns", admissionregistrationv1.Warn, nil), binding("warns", admissionregistrationv1.Audit, nil),
		policy("narrow", every), binding("narrow", admissionregistrationv1.Deny, only("widgets")),
		policy("elsewhere", every), binding("elsewhere", admissionregistrationv1.Deny, only("pods")),
		policy("named", one), binding("named", admissionregistrationv1.Deny, nil),
		except("exempt", every), binding("exempt", admissionregistrationv1.Deny, nil),
		except("exempt-one", one), binding("exempt-one", admissionregistrationv1.Deny, nil),
		mutating, &admissionregistrationv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "mutates"}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "mutates"},
		},
	))
	expect.NoError(t, err)
	all := []string{"gadgets.example.com", "widgets.example.com"}
	expect.Equal(t, map[string][]string{
		"ValidatingAdmissionPolicy denies": all, "ValidatingAdmissionPolicy narrow": all[1:], "ValidatingAdmissionPolicy named": all,
		"ValidatingAdmissionPolicy exempt-one": all, "MutatingAdmissionPolicy mutates": all[:1],
	}, matched(hooks))
}

// TestRead reads MutatingAdmissionPolicies in the version that a cluster serves, and describes what narrows hooks.
func TestRead(t *testing.T) {
	t.Parallel()
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	hook := webhook{Name: "x", Rules: []rule{newRule("*", "*", "*")}, NamespaceSelector: selector, ObjectSelector: selector, MatchConditions: []condition{{Name: "c", Expression: "true"}}}
	client := fake.NewClientset(configuration("hooks", hook))
	for _, resource := range []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} {
		client.PrependReactor("list", resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
			return action.GetResource().Version == "v1", nil, apierrors.NewNotFound(action.GetResource().GroupResource(), "")
		})
	}
	older := client.AdmissionregistrationV1beta1()
	expect.Create(t, older.MutatingAdmissionPolicies(), &admissionregistrationv1beta1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "older"}})
	hooks, err := Read(t.Context(), client)
	expect.NoError(t, err)
	if len(hooks) != 2 {
		t.Fatalf("read %v", hooks)
	}
	expect.Equal(t, "namespaces a=b, objects a=b, match conditions", hooks[0].Restrictions())
	expect.Equal(t, "MutatingAdmissionPolicy older", hooks[1].String())
	expect.Equal(t, "", hooks[1].Restrictions())
}

// conditionsOf returns the match conditions of the webhooks of a configuration.
func conditionsOf(t *testing.T, client *fake.Clientset, name string) [][]condition {
	t.Helper()
	var all [][]condition
	for _, webhook := range expect.Get(t, client.AdmissionregistrationV1().ValidatingWebhookConfigurations(), name).Webhooks {
		all = append(all, webhook.MatchConditions)
	}
	return all
}

// never is an attempt that is never replaced.
func never(context.Context) error { return nil }

func TestExempt(t *testing.T) {
	t.Parallel()
	everything, pods := []rule{newRule("*", "*", "*")}, []rule{newRule("", "v1", "pods")}
	kept, other := condition{Name: "kept", Expression: "true"}, condition{Name: ConditionName("other.com"), Expression: "true"}
	outdated := condition{Name: ConditionName("example.com"), Expression: "false"}
	before := configuration("hooks", webhook{Name: "none", Rules: everything}, webhook{Name: "pods", Rules: pods},
		webhook{Name: "two", Rules: everything, MatchConditions: []condition{kept, other}}, webhook{Name: "outdated", Rules: everything, MatchConditions: []condition{outdated, kept}})
	denies := policy("denies", namedRule{RuleWithOperations: newRule("*", "*", "*")})
	client := fake.NewClientset(before.DeepCopy(), denies, binding("denies", admissionregistrationv1.Deny, nil))
	added := condition{Name: "example.com/annex-exempt", Expression: `request.resource.group != "example.com" || request.userInfo.username != "` + annex + `"`}
	for range 2 { // again, after a restart
		expect.NoError(t, Exempt(t.Context(), client, "example.com", Account(annex), both, never))
		expect.Equal(t, [][]condition{{added}, nil, {kept, other, added}, {added, kept}}, conditionsOf(t, client, "hooks"))
		expect.Equal(t, []condition{added}, expect.Get(t, client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), "denies").Spec.MatchConditions)
	}
	hooks, err := Read(t.Context(), client)
	expect.NoError(t, err)
	expect.Equal(t, 4, len(Exempted(hooks, "example.com")))
	expect.Equal(t, 4, len(matched(hooks)), "annex's own conditions are temporary")
	expect.Equal(t, []rbacv1.PolicyRule{
		{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"validatingadmissionpolicies"}, ResourceNames: []string{"denies"}, Verbs: []string{"patch"}},
		{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"validatingwebhookconfigurations"}, ResourceNames: []string{"hooks"}, Verbs: []string{"patch"}},
	}, Rules(Exempted(hooks, "example.com")))
	for range 2 {
		expect.NoError(t, End(t.Context(), client, "example.com", never))
		expect.Equal(t, [][]condition{nil, nil, {kept, other}, {kept}}, conditionsOf(t, client, "hooks"))
	}
	patches := 0
	for _, action := range client.Actions() {
		if action.GetVerb() == "patch" {
			patches++
		}
	}
	expect.Equal(t, 4, patches)
}

// TestExemptIsConditional: a patch depends on the version that was read, and is made again after a conflict.
func TestExemptIsConditional(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(configuration("hooks", webhook{Name: "a", Rules: []rule{newRule("*", "*", "*")}}))
	conflicts, patch := 0, ""
	client.PrependReactor("patch", "validatingwebhookconfigurations", func(action clienttesting.Action) (bool, runtime.Object, error) {
		conflicts, patch = conflicts+1, string(action.(clienttesting.PatchAction).GetPatch())
		return conflicts < 3, nil, apierrors.NewConflict(action.GetResource().GroupResource(), "hooks", nil)
	})
	expect.NoError(t, Exempt(t.Context(), client, "example.com", Account(annex), both, never))
	expect.Contains(t, patch, `{"op":"replace","path":"/metadata/resourceVersion","value":"7"}`)
	expect.Equal(t, 3, conflicts)
}

// TestExemptWithoutRights: what annex may change is changed nevertheless.
func TestExemptWithoutRights(t *testing.T) {
	t.Parallel()
	everything := webhook{Name: "all", Rules: []rule{newRule("*", "*", "*")}}
	client := fake.NewClientset(configuration("a", everything), configuration("b", everything))
	client.PrependReactor("patch", "validatingwebhookconfigurations", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return action.(clienttesting.PatchAction).GetName() == "a", nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "a", nil)
	})
	err := Exempt(t.Context(), client, "example.com", Account(annex), both, never)
	expect.Error(t, err, "change the match conditions of ValidatingWebhookConfiguration a")
	if !apierrors.IsForbidden(err) {
		t.Errorf("%v does not say that it is forbidden", err)
	}
	expect.Equal(t, 1, len(conditionsOf(t, client, "b")[0]))
}

// TestExemptReplaced: an attempt that another one has replaced changes nothing.
func TestExemptReplaced(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(configuration("a", webhook{Name: "all", Rules: []rule{newRule("*", "*", "*")}}))
	replaced := func(context.Context) error { return errors.New("replaced") }
	expect.Error(t, Exempt(t.Context(), client, "example.com", Account(annex), both, replaced), "replaced")
	expect.Equal(t, [][]condition{nil}, conditionsOf(t, client, "a"))
	expect.NoError(t, Exempt(t.Context(), client, "example.com", Account(annex), both, never))
	expect.Error(t, End(t.Context(), client, "example.com", replaced), "replaced")
	expect.Equal(t, 1, len(conditionsOf(t, client, "a")[0]))
}

func TestExemptFull(t *testing.T) {
	t.Parallel()
	full := webhook{Name: "full", Rules: []rule{newRule("*", "*", "*")}}
	for i := range maxConditions {
		full.MatchConditions = append(full.MatchConditions, condition{Name: fmt.Sprint("c", i), Expression: "true"})
	}
	client := fake.NewClientset(configuration("a", webhook{Name: "a", Rules: full.Rules}), configuration("b", full))
	expect.Error(t, Exempt(t.Context(), client, "example.com", Account(annex), both, never),
		"ValidatingWebhookConfiguration b (full) has 64 match conditions, and no more are allowed")
	expect.Equal(t, [][]condition{nil}, conditionsOf(t, client, "a"), "nothing is written")
}

// TestAccountOf takes no name of a group for annex's.
func TestAccountOf(t *testing.T) {
	t.Parallel()
	admins := rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "annexes"}
	for name, tc := range map[string]struct {
		subjects []rbacv1.Subject
		name     string
		groups   []string
	}{
		"none":              {nil, "", []string{"system:authenticated"}},
		"a service account": {[]rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "ns", Name: "annex"}}, "system:serviceaccount:ns:annex", []string{"system:serviceaccounts", "system:serviceaccounts:ns"}},
		"a user":            {[]rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "annex"}}, "annex", []string{"system:authenticated"}},
		"a group":           {[]rbacv1.Subject{admins}, "", []string{"system:authenticated", "annexes"}},
		"a group and more":  {[]rbacv1.Subject{admins, {Kind: rbacv1.UserKind, Name: "annex"}}, "annex", []string{"system:authenticated"}},
	} {
		account := AccountOf(tc.subjects)
		expect.Equal(t, tc.name, account.GetName(), name)
		expect.Equal(t, tc.groups, account.GetGroups(), name)
	}
}
