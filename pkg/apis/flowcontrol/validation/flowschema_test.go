// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"github.com/annex-dev/annex/pkg/apis/flowcontrol/validation"
	"github.com/annex-dev/annex/pkg/test/expect"
)

type (
	subject = flowcontrolv1.Subject
	rules   = flowcontrolv1.PolicyRulesWithSubjects
)

func userSubject(name string) subject {
	return subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: name}}
}

func accountSubject(namespace, name string) subject {
	return subject{Kind: flowcontrolv1.SubjectKindServiceAccount, ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: namespace, Name: name}}
}

func resourceRule() flowcontrolv1.ResourcePolicyRule {
	return flowcontrolv1.ResourcePolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}, Namespaces: []string{"default"}}
}

func flowSchema() *flowcontrolv1.FlowSchema {
	return &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "level"},
			MatchingPrecedence:         500,
			DistinguisherMethod:        &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			Rules: []rules{{
				Subjects:         []subject{userSubject("alice"), accountSubject("default", "*")},
				ResourceRules:    []flowcontrolv1.ResourcePolicyRule{resourceRule()},
				NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"/", "/healthz", "/debug/*"}}},
			}},
		},
	}
}

func TestValidateFlowSchema(t *testing.T) {
	t.Parallel()
	type schema = flowcontrolv1.FlowSchema
	rule := func(change func(rule *flowcontrolv1.ResourcePolicyRule)) func(*schema) {
		return func(s *schema) { change(&s.Spec.Rules[0].ResourceRules[0]) }
	}
	url := func(urls ...string) func(*schema) {
		return func(s *schema) { s.Spec.Rules[0].NonResourceRules[0].NonResourceURLs = urls }
	}
	withSubject := func(subject subject) func(*schema) {
		return func(s *schema) { s.Spec.Rules[0].Subjects = []flowcontrolv1.Subject{subject} }
	}
	tests := map[string]struct {
		change func(*schema)
		want   []string
	}{
		"valid":           {func(*schema) {}, nil},
		"no rules at all": {func(s *schema) { s.Spec.Rules = nil }, nil},
		"name":            {func(s *schema) { s.Name = "A" }, []string{`metadata.name: Invalid value: "A"`}},
		"no precedence":   {func(s *schema) { s.Spec.MatchingPrecedence = -1 }, []string{"spec.matchingPrecedence: Invalid value: -1: must be a positive value"}},
		"high precedence": {func(s *schema) { s.Spec.MatchingPrecedence = 10001 }, []string{"spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000"}},
		"precedence of the exempt one": {func(s *schema) { s.Spec.MatchingPrecedence = 1 }, []string{
			"spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
		}},
		"distinguisher": {func(s *schema) { s.Spec.DistinguisherMethod.Type = "ByAge" }, []string{
			`spec.distinguisherMethod.type: Unsupported value: {"type":"ByAge"}: supported values: "ByNamespace", "ByUser"`,
		}},
		"no level":   {func(s *schema) { s.Spec.PriorityLevelConfiguration.Name = "" }, []string{"spec.priorityLevelConfiguration.name: Required value: must reference a priority level"}},
		"bad level":  {func(s *schema) { s.Spec.PriorityLevelConfiguration.Name = "A" }, []string{`spec.priorityLevelConfiguration.name: Invalid value: "A": a lowercase`}},
		"no subject": {func(s *schema) { s.Spec.Rules[0].Subjects = nil }, []string{"spec.rules[0].subjects: Required value: subjects must contain"}},
		"nothing": {func(s *schema) { s.Spec.Rules[0].ResourceRules, s.Spec.Rules[0].NonResourceRules = nil, nil }, []string{
			"spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules",
		}},
		"unknown kind": {withSubject(subject{Kind: "Robot"}), []string{`spec.rules[0].subjects[0].kind: Unsupported value: "Robot": supported values: "Group", "ServiceAccount", "User"`}},
		"without its field": {withSubject(subject{Kind: flowcontrolv1.SubjectKindGroup}), []string{
			"spec.rules[0].subjects[0].group: Required value: group is required when subject kind is 'Group'",
		}},
		"with another's field": {withSubject(subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: "g"}, User: &flowcontrolv1.UserSubject{Name: "u"}}), []string{
			"spec.rules[0].subjects[0].user: Forbidden: user is forbidden when subject kind is not 'User'",
		}},
		"nameless user":  {withSubject(userSubject("")), []string{"spec.rules[0].subjects[0].user.name: Required value"}},
		"nameless group": {withSubject(subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{}}), []string{"spec.rules[0].subjects[0].group.name: Required value"}},
		"empty account": {withSubject(accountSubject("", "")), []string{
			"spec.rules[0].subjects[0].serviceAccount.name: Required value",
			"spec.rules[0].subjects[0].serviceAccount.namespace: Required value: must specify namespace for service account",
		}},
		"bad account": {withSubject(accountSubject("*", "A")), []string{
			`spec.rules[0].subjects[0].serviceAccount.name: Invalid value: "A"`, `spec.rules[0].subjects[0].serviceAccount.namespace: Invalid value: "*"`,
		}},
		"empty rule": {rule(func(r *flowcontrolv1.ResourcePolicyRule) { *r = flowcontrolv1.ResourcePolicyRule{} }), []string{
			"spec.rules[0].resourceRules[0].verbs: Required value: verbs must contain at least one value",
			"spec.rules[0].resourceRules[0].apiGroups: Required value: resource rules must supply at least one api group",
			"spec.rules[0].resourceRules[0].resources: Required value: resource rules must supply at least one resource",
			"spec.rules[0].resourceRules[0].namespaces: Required value: resource rules that are not cluster scoped must supply at least one namespace",
		}},
		"all and more": {rule(func(r *flowcontrolv1.ResourcePolicyRule) {
			both := []string{"*", "get"}
			*r = flowcontrolv1.ResourcePolicyRule{Verbs: both, APIGroups: both, Resources: both, Namespaces: both}
		}), []string{
			`spec.rules[0].resourceRules[0].verbs: Invalid value: ["*","get"]: if '*' is present, must not specify other verbs`,
			`spec.rules[0].resourceRules[0].apiGroups: Invalid value: ["*","get"]: if '*' is present, must not specify other api groups`,
			`spec.rules[0].resourceRules[0].resources: Invalid value: ["*","get"]: if '*' is present, must not specify other resources`,
			`spec.rules[0].resourceRules[0].namespaces: Invalid value: ["*","get"]: if '*' is present, must not specify other namespaces`,
		}},
		"cluster scoped": {rule(func(r *flowcontrolv1.ResourcePolicyRule) { r.Namespaces, r.ClusterScope = nil, true }), nil},
		"unknown verb":   {rule(func(r *flowcontrolv1.ResourcePolicyRule) { r.Verbs = []string{"get", "smash"} }), []string{`spec.rules[0].resourceRules[0].verbs: Unsupported value: ["get","smash"]`}},
		"bad namespace": {rule(func(r *flowcontrolv1.ResourcePolicyRule) { r.Namespaces = []string{"a", "B"} }), []string{
			`spec.rules[0].resourceRules[0].namespaces[1]: Invalid value: "B": each member of this list must be '*' or a DNS-1123 label; a lowercase`,
		}},
		"no URLs":          {url(), []string{"spec.rules[0].nonResourceRules[0].nonResourceURLs: Required value"}},
		"all URLs":         {url("*"), nil},
		"all URLs and one": {url("*", "/a"), []string{"spec.rules[0].nonResourceRules[0].nonResourceURLs: Invalid value"}},
		"bad URLs": {url("", "a", "/a b", "/a//b", "/a*", "/*/a", "/*/*", "*/"), []string{
			`spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: "": must not be empty`,
			`spec.rules[0].nonResourceRules[0].nonResourceURLs[1]: Invalid value: "a": must start with slash`,
			`spec.rules[0].nonResourceRules[0].nonResourceURLs[2]: Invalid value: "/a b": must not contain white-space`,
			`spec.rules[0].nonResourceRules[0].nonResourceURLs[3]: Invalid value: "/a//b": must not contain double slash`,
			`spec.rules[0].nonResourceRules[0].nonResourceURLs[4]: Invalid value: "/a*": wildcard can only do suffix matching`,
			`spec.rules[0].nonResourceRules[0].nonResourceURLs[5]: Invalid value: "/*/a": wildcard can only do suffix matching`,
			`spec.rules[0].nonResourceRules[0].nonResourceURLs[6]: Invalid value: "/*/*": wildcard can only do suffix matching`,
			`spec.rules[0].nonResourceRules[0].nonResourceURLs[7]: Invalid value: "*/": must start with slash`,
		}},
		"conditions": {func(s *schema) {
			s.Status.Conditions = []flowcontrolv1.FlowSchemaCondition{{Type: "A"}, {Type: "A"}, {}}
		}, []string{`status.conditions[1].type: Duplicate value: "A"`, "status.conditions[2].type: Required value"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := flowSchema()
			test.change(changed)
			expect.FieldErrors(t, validation.ValidateFlowSchema(changed), test.want...)
		})
	}
}

func TestMandatoryFlowSchemasAreFixed(t *testing.T) {
	t.Parallel()
	for _, mandatory := range bootstrap.MandatoryFlowSchemas {
		expect.FieldErrors(t, validation.ValidateFlowSchema(mandatory))
		changed := mandatory.DeepCopy()
		changed.Labels = map[string]string{"mine": "yes"}
		expect.FieldErrors(t, validation.ValidateFlowSchema(changed))
		changed.Spec.Rules = changed.Spec.Rules[:0]
		expect.FieldErrors(t, validation.ValidateFlowSchema(changed), "spec: Invalid value: ")
	}
	for _, suggested := range bootstrap.SuggestedFlowSchemas {
		expect.FieldErrors(t, validation.ValidateFlowSchema(suggested))
	}
}
