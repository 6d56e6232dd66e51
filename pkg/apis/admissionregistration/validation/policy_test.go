// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func match(resources ...string) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{
		MatchPolicy: new(admissionregistrationv1.Equivalent), NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: rule(resources...)}},
	}
}

type validatingSample = admissionregistrationv1.ValidatingAdmissionPolicy

func validValidating() *validatingSample {
	return &validatingSample{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionregistrationv1.Fail), MatchConstraints: match("configmaps"),
			Validations: []admissionregistrationv1.Validation{{Expression: "object.data.size() < 2"}},
		},
	}
}

func TestValidatingPolicies(t *testing.T) {
	t.Parallel()
	validation := func(v admissionregistrationv1.Validation) func(*validatingSample) {
		return func(p *validatingSample) { p.Spec.Validations = []admissionregistrationv1.Validation{v} }
	}
	annotations := func(annotations ...admissionregistrationv1.AuditAnnotation) func(*validatingSample) {
		return func(p *validatingSample) { p.Spec.AuditAnnotations = annotations }
	}
	tests := map[string]struct {
		change func(*validatingSample)
		want   []string
	}{
		"valid": {func(*validatingSample) {}, nil},
		"nothing in it": {func(p *validatingSample) { p.Spec = admissionregistrationv1.ValidatingAdmissionPolicySpec{} }, []string{
			"spec.failurePolicy: Required", "spec.matchConstraints: Required",
			"spec.validations: Required value: validations or auditAnnotations must contain at least one item",
			"spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item"}},
		"failure policy": {func(p *validatingSample) {
			p.Spec.FailurePolicy = new(admissionregistrationv1.FailurePolicyType("x"))
		}, []string{"spec.failurePolicy: Unsupported"}},
		"nothing matched": {func(p *validatingSample) { p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{} }, []string{
			"spec.matchConstraints.matchPolicy: Required", "spec.matchConstraints.namespaceSelector: Required", "spec.matchConstraints.objectSelector: Required",
			"spec.matchConstraints.resourceRules: Required"}},
		"resource names": {func(p *validatingSample) {
			p.Spec.MatchConstraints.ResourceRules[0].ResourceNames = []string{"a", "a", "a/b"}
			p.Spec.MatchConstraints.ExcludeResourceRules = []admissionregistrationv1.NamedRuleWithOperations{{}}
		}, []string{
			`spec.matchConstraints.resourceRules[0].resourceNames[1]: Duplicate value: "a"`,
			`spec.matchConstraints.resourceRules[0].resourceNames[2]: Invalid value: "a/b"`,
			"spec.matchConstraints.excludeResourceRules[0].operations: Required", "spec.matchConstraints.excludeResourceRules[0].apiGroups: Required",
			"spec.matchConstraints.excludeResourceRules[0].apiVersions: Required", "spec.matchConstraints.excludeResourceRules[0].resources: Required"}},

		"params": {func(p *validatingSample) {
			p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
			p.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{condition("a", "params.data.on == 'yes'")}
			p.Spec.Validations[0].Expression = "object.data.size() < int(params.data.max)"
			p.Spec.Validations[0].MessageExpression = "'at most ' + params.data.max"
		}, nil},
		"params without a kind": {func(p *validatingSample) { p.Spec.Validations[0].Expression = "params.x" }, []string{"spec.validations[0].expression: Invalid value: \"params.x\": compilation failed"}},
		"param kind":            {func(p *validatingSample) { p.Spec.ParamKind = &admissionregistrationv1.ParamKind{} }, []string{"spec.paramKind.apiVersion: Required", "spec.paramKind.kind: Required"}},
		"param kind that is wrong": {func(p *validatingSample) {
			p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "G_/V", Kind: "No No"}
		}, []string{`spec.paramKind.apiVersion: Invalid value: "G_"`, `spec.paramKind.apiVersion: Invalid value: "V"`, `spec.paramKind.kind: Invalid value: "No No": may have mixed case`}},
		"param version": {func(p *validatingSample) {
			p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "a/", Kind: "K"}
		}, []string{`spec.paramKind.apiVersion: Invalid value: "a/": version must be specified`}},
		"param version of a depth": {func(p *validatingSample) {
			p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "a/b/c", Kind: "K"}
		}, []string{`spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string`}},

		"variables": {func(p *validatingSample) {
			p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "size", Expression: "object.data.size()"}, {Name: "small", Expression: "variables.size < 2"}}
			p.Spec.Validations[0].Expression = "variables.small"
			p.Spec.Validations[0].MessageExpression = "'size is ' + string(variables.size)"
		}, nil},
		"variables that are wrong": {func(p *validatingSample) {
			p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "1", Expression: "true"}, {Name: " ", Expression: " "}, {Name: "for", Expression: "variables.later"}}
		}, []string{
			`spec.variables[0].name: Invalid value: "1": must be a valid CEL identifier`,
			"spec.variables[1].name: Required value: name is not specified", "spec.variables[1].expression: Required value: expression is not specified",
			`spec.variables[2].name: Invalid value: "for"`, `spec.variables[2].expression: Invalid value: "variables.later": compilation failed: ERROR: <input>:1:10: undefined field 'later'`}},
		"a variable of the wrong type": {func(p *validatingSample) {
			p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "size", Expression: "object.data.size()"}}
			p.Spec.Validations[0].Expression = "variables.size"
		}, []string{`spec.validations[0].expression: Invalid value: "variables.size": must evaluate to bool but got int`}},
		"a condition that wants a variable": {func(p *validatingSample) {
			p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "yes", Expression: "true"}}
			p.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{condition("a", "variables.yes")}
		}, []string{`spec.matchConditions[0].expression: Invalid value: "variables.yes": compilation failed`}},

		"no expression":       {validation(admissionregistrationv1.Validation{Expression: " "}), []string{"spec.validations[0].expression: Required value: expression is not specified"}},
		"syntax":              {validation(admissionregistrationv1.Validation{Expression: "object. <"}), []string{`spec.validations[0].expression: Invalid value: "object. <": compilation failed: ERROR: <input>:1:9: Syntax error`}},
		"blank messages":      {validation(admissionregistrationv1.Validation{Expression: "true", Message: " ", MessageExpression: " "}), []string{`spec.validations[0].messageExpression: Invalid value: " ": must be non-empty if specified`, `spec.validations[0].message: Invalid value: " ": must be non-empty`}},
		"lines in a message":  {validation(admissionregistrationv1.Validation{Expression: "true", Message: "a\nb"}), []string{`spec.validations[0].message: Invalid value: "a\nb": must not contain line breaks`}},
		"message that is not": {validation(admissionregistrationv1.Validation{Expression: "true", MessageExpression: "1"}), []string{`spec.validations[0].messageExpression: Invalid value: "1": must evaluate to string but got int`}},
		"rights in a message": {validation(admissionregistrationv1.Validation{Expression: "true", MessageExpression: "string(authorizer.path('/').check('get').allowed())"}), []string{`spec.validations[0].messageExpression: Invalid value`}},
		"reason":              {validation(admissionregistrationv1.Validation{Expression: "true", Reason: new(metav1.StatusReasonGone)}), []string{`spec.validations[0].reason: Unsupported value: "Gone": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge"`}},

		"annotations": {annotations(admissionregistrationv1.AuditAnnotation{Key: "who", ValueExpression: "request.userInfo.username"}, admissionregistrationv1.AuditAnnotation{Key: "maybe", ValueExpression: "null"}), nil},
		"annotations that are wrong": {annotations(
			admissionregistrationv1.AuditAnnotation{Key: "a", ValueExpression: "1"}, admissionregistrationv1.AuditAnnotation{Key: "a", ValueExpression: ""},
			admissionregistrationv1.AuditAnnotation{Key: "a/b", ValueExpression: "'" + strings.Repeat("x", 5*1024) + "'"}), []string{
			`spec.auditAnnotations[0].valueExpression: Invalid value: "1": must evaluate to one of`,
			"spec.auditAnnotations[1].valueExpression: Required value: valueExpression is not specified", `spec.auditAnnotations[1].key: Duplicate value: "a"`,
			`spec.auditAnnotations[2].key: Invalid value: "p/a/b"`, "spec.auditAnnotations[2].valueExpression: Required value: must not exceed 5120 bytes in length"}},
		"only annotations": {func(p *validatingSample) {
			p.Spec.Validations = nil
			annotations(admissionregistrationv1.AuditAnnotation{Key: "a", ValueExpression: "'b'"})(p)
		}, nil},
		"too many annotations": {func(p *validatingSample) {
			for i := range 21 {
				p.Spec.AuditAnnotations = append(p.Spec.AuditAnnotations, admissionregistrationv1.AuditAnnotation{Key: strings.Repeat("a", i+1), ValueExpression: "'b'"})
			}
		}, []string{"spec.auditAnnotations: Invalid value"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := validValidating()
			test.change(policy)
			expect.FieldErrors(t, ValidateValidatingAdmissionPolicy(policy), test.want...)
		})
	}
}

func TestValidatingPolicyUpdates(t *testing.T) {
	t.Parallel()
	stored := validValidating()
	stored.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{condition("a", "gone == 1")}
	updated := stored.DeepCopy()
	updated.Spec.Validations[0].Message = "changed"
	expect.FieldErrors(t, ValidateValidatingAdmissionPolicyUpdate(updated, stored))
	// What a condition sees has changed.
	updated.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	expect.FieldErrors(t, ValidateValidatingAdmissionPolicyUpdate(updated, stored), "spec.matchConditions[0].expression: Invalid value")
}

// Each expression that is stored is compiled as such when it is there again, in
// the same place, and only then.
func TestStoredExpressions(t *testing.T) {
	t.Parallel()
	policy := validValidating()
	policy.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{condition("a", "c")}
	policy.Spec.Variables = []admissionregistrationv1.Variable{{Name: "v", Expression: "v"}}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "e", MessageExpression: "m"}}
	policy.Spec.AuditAnnotations = []admissionregistrationv1.AuditAnnotation{{ValueExpression: "a"}}
	mutating := validMutating()
	mutating.Spec.MatchConditions, mutating.Spec.Variables = policy.Spec.MatchConditions, policy.Spec.Variables
	mutating.Spec.Mutations = []admissionregistrationv1.Mutation{
		{ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: "ac"}}, {JSONPatch: &admissionregistrationv1.JSONPatch{Expression: "jp"}}}
	for _, test := range []struct {
		stored expressions
		texts  map[use]string
	}{
		{validatingExpressions(policy), map[use]string{matchCondition: "c", variable: "v", validationCondition: "e", message: "m", auditAnnotation: "a"}},
		{mutatingExpressions(mutating), map[use]string{matchCondition: "c", variable: "v", applyConfiguration: "ac", jsonPatch: "jp"}},
	} {
		for use := matchCondition; use <= jsonPatch; use++ {
			for _, text := range []string{"c", "v", "e", "m", "a", "ac", "jp"} {
				want := environment.NewExpressions
				if stored, ok := test.texts[use]; ok && stored == text {
					want = environment.StoredExpressions
				}
				if got := (checker{stored: test.stored}).environment(use, text); got != want {
					t.Errorf("use %d of %q is compiled as %s, want %s", use, text, got, want)
				}
			}
		}
	}
}

func TestPolicyStatus(t *testing.T) {
	t.Parallel()
	policy := &validatingSample{Status: admissionregistrationv1.ValidatingAdmissionPolicyStatus{
		TypeChecking: &admissionregistrationv1.TypeChecking{ExpressionWarnings: []admissionregistrationv1.ExpressionWarning{
			{FieldRef: "spec.validations[0].expression", Warning: "w"}, {}, {FieldRef: "spec[", Warning: "w"}}},
		Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, LastTransitionTime: metav1.Now()}},
	}}
	expect.FieldErrors(t, ValidateValidatingAdmissionPolicyStatusUpdate(policy),
		"status.typeChecking.expressionWarnings[1].warning: Required", "status.typeChecking.expressionWarnings[1].fieldRef: Required",
		`status.typeChecking.expressionWarnings[2].fieldRef: Invalid value: "spec[": invalid JSONPath`, "status.conditions[0].reason: Required")
	expect.FieldErrors(t, ValidateValidatingAdmissionPolicyStatusUpdate(&validatingSample{}))
}

type mutatingSample = admissionregistrationv1.MutatingAdmissionPolicy

func validMutating() *mutatingSample {
	return &mutatingSample{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy: new(admissionregistrationv1.Fail), MatchConstraints: match("configmaps"), ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: `Object{metadata: Object.metadata{labels: {"a": "b"}}}`},
			}},
		},
	}
}

func TestMutatingPolicies(t *testing.T) {
	t.Parallel()
	jsonPatchOf := func(expression string) *admissionregistrationv1.JSONPatch {
		return &admissionregistrationv1.JSONPatch{Expression: expression}
	}
	mutation := func(m admissionregistrationv1.Mutation) func(*mutatingSample) {
		return func(p *mutatingSample) { p.Spec.Mutations = []admissionregistrationv1.Mutation{m} }
	}
	tests := map[string]struct {
		change func(*mutatingSample)
		want   []string
	}{
		"valid": {func(*mutatingSample) {}, nil},
		"nothing in it": {func(p *mutatingSample) { p.Spec = admissionregistrationv1.MutatingAdmissionPolicySpec{} }, []string{
			"spec.failurePolicy: Required", "spec.matchConstraints: Required", "spec.mutations: Required value: mutations must contain at least one item", "spec.reinvocationPolicy: Required"}},
		"reinvocation": {func(p *mutatingSample) { p.Spec.ReinvocationPolicy = "x" }, []string{"spec.reinvocationPolicy: Unsupported"}},
		"deleting": {func(p *mutatingSample) {
			p.Spec.MatchConstraints.ResourceRules[0].Operations = []admissionregistrationv1.OperationType{"DELETE"}
		}, []string{`spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE"`}},
		"variables": {func(p *mutatingSample) {
			p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "b", Expression: "'b'"}}
			p.Spec.Mutations[0].ApplyConfiguration.Expression = `Object{metadata: Object.metadata{labels: {"a": variables.b}}}`
		}, nil},
		"patch":            {mutation(admissionregistrationv1.Mutation{PatchType: "JSONPatch", JSONPatch: jsonPatchOf(`[JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("a/b"), value: "c"}]`)}), nil},
		"no type":          {mutation(admissionregistrationv1.Mutation{}), []string{"spec.mutations[0].patchType: Required"}},
		"unknown type":     {mutation(admissionregistrationv1.Mutation{PatchType: "Merge"}), []string{`spec.mutations[0].patchType: Unsupported value: "Merge": supported values: "ApplyConfiguration", "JSONPatch"`}},
		"no patch":         {mutation(admissionregistrationv1.Mutation{PatchType: "JSONPatch"}), []string{"spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch"}},
		"no configuration": {mutation(admissionregistrationv1.Mutation{PatchType: "ApplyConfiguration", JSONPatch: jsonPatchOf("[]")}), []string{"spec.mutations[0].applyConfiguration: Required", "spec.mutations[0].jsonPatch: Invalid value: \"{jsonPatch}\": must not be specified"}},
		"both":             {mutation(admissionregistrationv1.Mutation{PatchType: "JSONPatch", JSONPatch: jsonPatchOf(" "), ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{}}), []string{"spec.mutations[0].jsonPatch.expression: Required", "spec.mutations[0].applyConfiguration: Invalid value"}},
		"not a patch":      {mutation(admissionregistrationv1.Mutation{PatchType: "JSONPatch", JSONPatch: jsonPatchOf("true")}), []string{`spec.mutations[0].jsonPatch.expression: Invalid value: "true": must evaluate to list(JSONPatch) but got bool`}},
		"not an object":    {func(p *mutatingSample) { p.Spec.Mutations[0].ApplyConfiguration.Expression = "{}" }, []string{`spec.mutations[0].applyConfiguration.expression: Invalid value: "{}": must evaluate to Object but got map`}},
		"conditions, params": {func(p *mutatingSample) {
			p.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{condition("a", "params.x")}
		}, []string{"spec.matchConditions[0].expression: Invalid value"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := validMutating()
			test.change(policy)
			expect.FieldErrors(t, ValidateMutatingAdmissionPolicy(policy), test.want...)
		})
	}
	stored := validMutating()
	stored.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{condition("a", "gone == 1")}
	expect.FieldErrors(t, ValidateMutatingAdmissionPolicyUpdate(stored, stored))
	expect.FieldErrors(t, ValidateMutatingAdmissionPolicyUpdate(stored, validMutating()), "spec.matchConditions[0].expression: Invalid value")
}

func TestBindings(t *testing.T) {
	t.Parallel()
	ref := func(ref admissionregistrationv1.ParamRef) func(*admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec) {
		return func(s *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec) { s.ParamRef = &ref }
	}
	deny := new(admissionregistrationv1.DenyAction)
	type spec = admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec
	tests := map[string]struct {
		change func(*spec)
		want   []string
	}{
		"valid":             {func(*spec) {}, nil},
		"nothing in it":     {func(s *spec) { s.PolicyName = "" }, []string{"spec.policyName: Required"}},
		"name":              {func(s *spec) { s.PolicyName = "A" }, []string{`spec.policyName: Invalid value: "A"`}},
		"params by name":    {ref(admissionregistrationv1.ParamRef{Name: "a", ParameterNotFoundAction: deny}), nil},
		"params by labels":  {ref(admissionregistrationv1.ParamRef{Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: deny}), nil},
		"params by neither": {ref(admissionregistrationv1.ParamRef{}), []string{"spec.paramRef: Required value: one of name or selector must be specified", "spec.paramRef.parameterNotFoundAction: Required"}},
		"params by both": {ref(admissionregistrationv1.ParamRef{Name: "a/b", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "-"}}, ParameterNotFoundAction: new(admissionregistrationv1.ParameterNotFoundActionType("x"))}), []string{
			`spec.paramRef.name: Invalid value: "a/b"`, `spec.paramRef.selector.matchLabels: Invalid value: "-"`,
			"spec.paramRef.name: Forbidden: name and selector are mutually exclusive", "spec.paramRef.selector: Forbidden", `spec.paramRef.parameterNotFoundAction: Unsupported value: "x": supported values: "Deny", "Allow"`}},
		"an empty action": {ref(admissionregistrationv1.ParamRef{Name: "a", ParameterNotFoundAction: new(admissionregistrationv1.ParameterNotFoundActionType(""))}), []string{"spec.paramRef.parameterNotFoundAction: Required"}},
		"matched":         {func(s *spec) { s.MatchResources = &admissionregistrationv1.MatchResources{} }, []string{"spec.matchResources.matchPolicy: Required", "spec.matchResources.namespaceSelector: Required", "spec.matchResources.objectSelector: Required"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := spec{PolicyName: "p", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}}
			test.change(&s)
			meta := metav1.ObjectMeta{Name: "b"}
			expect.FieldErrors(t, ValidateValidatingAdmissionPolicyBinding(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: s}), test.want...)
			expect.FieldErrors(t, ValidateMutatingAdmissionPolicyBinding(&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
				PolicyName: s.PolicyName, ParamRef: s.ParamRef, MatchResources: s.MatchResources}}), test.want...)
		})
	}
	deleting := match("configmaps")
	deleting.ResourceRules[0].Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Delete}
	expect.FieldErrors(t, ValidateMutatingAdmissionPolicyBinding(&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
		PolicyName: "p", MatchResources: deleting}}), "spec.matchResources.resourceRules.operations: Unsupported")
}

func TestActions(t *testing.T) {
	t.Parallel()
	type actions = []admissionregistrationv1.ValidationAction
	for name, test := range map[string]struct {
		actions actions
		want    []string
	}{
		"none":          {nil, []string{"spec.validationActions: Required value"}},
		"two":           {actions{"Deny", "Audit"}, nil},
		"twice":         {actions{"Audit", "Audit"}, []string{`spec.validationActions[1]: Duplicate value: "Audit"`}},
		"unknown":       {actions{"Ignore"}, []string{`spec.validationActions[0]: Unsupported value: "Ignore": supported values: "Audit", "Deny", "Warn"`}},
		"deny and warn": {actions{"Deny", "Warn"}, []string{`spec.validationActions: Invalid value: ["Deny","Warn"]: must not contain both Deny and Warn`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect.FieldErrors(t, ValidateValidatingAdmissionPolicyBinding(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "p", ValidationActions: test.actions}}), test.want...)
		})
	}
}
