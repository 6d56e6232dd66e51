// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// matchResources matches resources of a group in a namespace.
func matchResources(namespace, group string, resources ...string) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: resources},
		}}},
	}
}

// policySpec parses the specification of a validating policy.
func policySpec(t *testing.T, manifest string, match *admissionregistrationv1.MatchResources) admissionregistrationv1.ValidatingAdmissionPolicySpec {
	t.Helper()
	spec := admissionregistrationv1.ValidatingAdmissionPolicySpec{}
	expect.NoError(t, yaml.UnmarshalStrict([]byte(manifest), &spec))
	spec.MatchConstraints = match
	return spec
}

// createPolicy creates a policy and its binding.
func (a *annex) createPolicy(t *testing.T, name string, spec admissionregistrationv1.ValidatingAdmissionPolicySpec, params *admissionregistrationv1.ParamRef, actions ...admissionregistrationv1.ValidationAction) {
	t.Helper()
	annexPolicies := a.Kube.AdmissionregistrationV1()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	expect.Create(t, annexPolicies.ValidatingAdmissionPolicies(), policy)
	t.Cleanup(func() { deleteQuietly(t, annexPolicies.ValidatingAdmissionPolicies().Delete, name) })
	if len(actions) == 0 {
		actions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ParamRef: params, ValidationActions: actions},
	}
	expect.Create(t, annexPolicies.ValidatingAdmissionPolicyBindings(), binding)
	t.Cleanup(func() { deleteQuietly(t, annexPolicies.ValidatingAdmissionPolicyBindings().Delete, name) })
}

// waitForRefusal waits until a dry run is refused with all of the words: policies come
// into force within about a second.
func waitForRefusal(t *testing.T, what string, try func() error, words ...string) {
	t.Helper()
	poll.Until(t, what+" is refused", func() string { return expect.MissingFrom(try(), words...) })
}

func TestAdmissionPolicyDenies(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	namespace := a.newNamespace(t)
	a.createPolicy(t, namespace, policySpec(t, `
matchConditions:
- {name: not-spared, expression: "request.name != 'spared'"}
variables:
- {name: size, expression: "has(object.data) ? object.data.size() : 0"}
- {name: large, expression: "variables.size > int(namespaceObject.metadata.?annotations['max'].orValue('2'))"}
validations:
- expression: "!variables.large"
  messageExpression: "'it has ' + string(variables.size) + ' keys in ' + namespaceObject.metadata.name"
  reason: RequestEntityTooLarge
- {expression: "!('secret' in object.data)", message: that belongs into a secret}
`, matchResources(namespace, "", "configmaps")), nil)
	try := func(name string, keys ...string) func() error {
		return func() error {
			_, err := a.tryConfigMap(t, namespace, name, true, func(c *corev1.ConfigMap) {
				c.Data = map[string]string{}
				for _, key := range keys {
					c.Data[key] = ""
				}
			})
			return err
		}
	}
	waitForRefusal(t, "a large one", try("large", "a", "b", "c"), "ValidatingAdmissionPolicy '"+namespace+"'", "it has 3 keys in "+namespace)
	if err := try("large", "a", "b", "c")(); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("%v does not have the reason that the policy gives", err)
	}
	if err := try("secret", "secret")(); !apierrors.IsInvalid(err) {
		t.Errorf("a secret in a configmap: %v, want it invalid, which is the reason where none is given", err)
	}
	for _, name := range []string{"small", "spared"} {
		keys := []string{"a", "b", "c"}
		if name == "small" {
			keys = keys[:2]
		}
		expect.Succeeds(t, try(name, keys...)(), "%s", name)
	}
}

// An expression that cannot be evaluated counts as the policy's failure.
func TestAdmissionPolicyFailurePolicy(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	strict, lenient := a.newNamespace(t), a.newNamespace(t)
	const spec = `
failurePolicy: %s
validations:
- {expression: "object.metadata.name != 'refused'", message: by name}
- {expression: "object.data['missing'] == 'x'"}
`
	a.createPolicy(t, strict, policySpec(t, fmt.Sprintf(spec, "Fail"), matchResources(strict, "", "configmaps")), nil)
	a.createPolicy(t, lenient, policySpec(t, fmt.Sprintf(spec, "Ignore"), matchResources(lenient, "", "configmaps")), nil)
	try := func(namespace, name string) func() error {
		return func() error {
			_, err := a.tryConfigMap(t, namespace, name, true)
			return err
		}
	}
	waitForRefusal(t, "one that cannot be evaluated", try(strict, "one"), "no such key: missing")
	waitForRefusal(t, "one that is refused", try(lenient, "refused"), "by name")
	expect.Succeeds(t, try(lenient, "one")(), "an ignored failure")
}

func TestAdmissionPolicyParams(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	namespace := a.newNamespace(t)
	limits := a.installCRD(t, newCRD(t, "type: object\nproperties: {spec: {type: object, properties: {max: {type: integer}}}}\n"))
	limits.create(t, "v1", "limit", "spec: {max: 1}")
	if _, err := a.tryConfigMap(t, namespace, "limit", false, func(c *corev1.ConfigMap) { c.Data = map[string]string{"max": "1"} }); err != nil {
		t.Fatal(err)
	}
	deny := new(admissionregistrationv1.DenyAction)
	kinds := map[string]struct {
		kind       *admissionregistrationv1.ParamKind
		namespace  string
		expression string
	}{
		"a ConfigMap":       {&admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}, namespace, "object.data.size() <= int(params.data.max)"},
		"a custom resource": {&admissionregistrationv1.ParamKind{APIVersion: limits.group + "/v1", Kind: "Widget"}, limits.namespace, "object.data.size() <= params.spec.max"},
	}
	for name, params := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			guarded, unguarded := a.newNamespace(t), a.newNamespace(t)
			spec := policySpec(t, fmt.Sprintf("validations: [{expression: %q, message: too many}]", params.expression), matchResources(guarded, "", "configmaps"))
			spec.ParamKind = params.kind
			a.createPolicy(t, guarded, spec, &admissionregistrationv1.ParamRef{Name: "limit", Namespace: params.namespace, ParameterNotFoundAction: deny})
			missing := *spec.DeepCopy()
			missing.MatchConstraints = matchResources(unguarded, "", "configmaps")
			a.createPolicy(t, unguarded, missing, &admissionregistrationv1.ParamRef{Name: "not-there", Namespace: params.namespace, ParameterNotFoundAction: deny})
			waitForRefusal(t, "two keys", func() error {
				_, err := a.tryConfigMap(t, guarded, "two", true, func(c *corev1.ConfigMap) { c.Data["b"] = "c" })
				return err
			}, "too many")
			if _, err := a.tryConfigMap(t, guarded, "one", true); err != nil {
				t.Errorf("one key: %v", err)
			}
			waitForRefusal(t, "a write without parameters", func() error {
				_, err := a.tryConfigMap(t, unguarded, "one", true)
				return err
			}, "no params found for policy binding with `Deny` parameterNotFoundAction")
		})
	}
}

// Expressions can check the rights of the caller.
func TestAdmissionPolicyAuthorizerChecks(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	namespace := a.newNamespace(t)
	a.createPolicy(t, namespace, policySpec(t, `
validations:
- expression: "authorizer.group('').resource('secrets').namespace(request.namespace).check('list').allowed()"
  messageExpression: "request.userInfo.username + ' may not see secrets'"
  reason: Forbidden
`, matchResources(namespace, "", "configmaps")), nil)
	a.grantCore(t, namespace, "carol", "configmaps")
	a.grantCore(t, namespace, "dave", "configmaps", "secrets")
	try := func(name string) response {
		return a.request(t, http.MethodPost, "/api/v1/namespaces/"+namespace+"/configmaps?dryRun=All", `{"metadata":{"name":"one"}}`, "Impersonate-User", name)
	}
	poll.UntilDone(t, "carol, without rights, is refused", func() (bool, string) {
		answer := try("carol")
		return answer.Code == http.StatusForbidden && strings.Contains(answer.String(), "carol may not see secrets"), answer.String()
	})
	// The rights of one user may be in force before another's.
	poll.UntilDone(t, "dave, with rights, is not", func() (bool, string) {
		answer := try("dave")
		return answer.Code == http.StatusCreated, answer.String()
	})
}

// grantCore gives a user all verbs on resources in a namespace.
func (a *annex) grantCore(t *testing.T, namespace, user string, resources ...string) {
	t.Helper()
	role := fmt.Sprintf(`{"metadata":{"name":%q},"rules":[{"apiGroups":[""],"resources":["%s"],"verbs":["*"]}]}`, user, strings.Join(resources, `","`))
	binding := fmt.Sprintf(`{"metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":%q},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":%q}]}`, user, user, user)
	for path, body := range map[string]string{"roles": role, "rolebindings": binding} {
		if answer := a.request(t, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/namespaces/"+namespace+"/"+path, body); answer.Code != http.StatusCreated {
			t.Fatalf("granting rights: %s", answer)
		}
	}
}

// A policy that only warns or audits does not deny.
func TestAdmissionPolicyActions(t *testing.T) {
	t.Parallel()
	auditLog := filepath.Join(t.TempDir(), "audit.log")
	rules := writeFile(t, "policy.yaml", []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata, resources: [{group: '', resources: [configmaps]}]}]\n"))
	a := startAnnex(t, "--audit-policy-file="+rules, "--audit-log-path="+auditLog)
	namespace := a.newNamespace(t)
	a.createPolicy(t, namespace, policySpec(t, `
validations:
- {expression: "!object.metadata.name.startsWith('odd')", message: that is odd}
auditAnnotations:
- {key: owner, valueExpression: "'owned by ' + object.metadata.?labels['owner'].orValue('none')"}
`, matchResources(namespace, "", "configmaps")), nil, admissionregistrationv1.Warn, admissionregistrationv1.Audit)
	poll.UntilDone(t, "an odd name is warned about", func() (bool, string) {
		answer := a.request(t, http.MethodPost, "/api/v1/namespaces/"+namespace+"/configmaps?dryRun=All", `{"metadata":{"name":"odd"}}`)
		warnings := answer.Header.Values("Warning")
		done := answer.Code == http.StatusCreated && len(warnings) == 1 && strings.Contains(warnings[0], "that is odd")
		return done, fmt.Sprintf("%s, warnings %q", answer, warnings)
	})
	poll.UntilDone(t, "the audit log has the annotations", func() (bool, string) {
		content, err := os.ReadFile(auditLog)
		return slices.ContainsFunc(strings.Split(string(content), "\n"), func(line string) bool {
			return strings.Contains(line, `"`+namespace+`/owner":"owned by none"`) && strings.Contains(line, `"validation.policy.admission.k8s.io/validation_failure"`)
		}), fmt.Sprintf("%s, error %v", content, err)
	})
}

func TestAdmissionPolicyTypeChecking(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	policies := a.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: a.newNamespace(t)},
		Spec:       policySpec(t, "validations: [{expression: 'object.data.size() > 0'}, {expression: 'object.dat.size() > 0'}]", matchResources("nowhere", "", "configmaps")),
	}
	policy = expect.Create(t, policies, policy)
	t.Cleanup(func() { deleteQuietly(t, policies.Delete, policy.Name) })
	checked := func(generation int64, warnings int) *admissionregistrationv1.ValidatingAdmissionPolicy {
		t.Helper()
		return expect.Eventually(t, policies, policy.Name, "the types are checked", func(last *admissionregistrationv1.ValidatingAdmissionPolicy) bool {
			found := ptr.Deref(last.Status.TypeChecking, admissionregistrationv1.TypeChecking{}).ExpressionWarnings
			return last.Status.ObservedGeneration == generation && len(found) == warnings
		})
	}
	policy = checked(1, 1)
	if warning := policy.Status.TypeChecking.ExpressionWarnings[0]; warning.FieldRef != "spec.validations[1].expression" || !strings.Contains(warning.Warning, "undefined field 'dat'") {
		t.Errorf("warned of %+v", warning)
	}
	policy.Spec.Validations[1].Expression = "object.data.size() > 1"
	expect.Update(t, policies, policy)
	checked(2, 0)
}

func TestMutatingAdmissionPolicy(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	widgets := a.installCRD(t, newCRD(t, "type: object\nproperties: {spec: {type: object, properties: {size: {type: integer}, tags: {type: array, items: {type: string}, x-kubernetes-list-type: set}}}}\n"))
	annexPolicies := a.Kube.AdmissionregistrationV1()
	for name, test := range map[string]struct {
		group, resource string
		namespace       string
		mutation        admissionregistrationv1.Mutation
	}{
		"apply": {widgets.group, "widgets", widgets.namespace, admissionregistrationv1.Mutation{
			PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
			ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: `Object{metadata: Object.metadata{labels: {"set": params.data.value}}, spec: Object.spec{size: has(object.spec.size) ? object.spec.size : 3}}`},
		}},
		"patch": {"", "configmaps", a.newNamespace(t), admissionregistrationv1.Mutation{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch,
			JSONPatch: &admissionregistrationv1.JSONPatch{Expression: `[JSONPatch{op: "add", path: "/metadata/labels", value: {"set": params.data.value}}]`},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := a.newNamespace(t)
			if _, err := a.tryConfigMap(t, own, "values", false, func(c *corev1.ConfigMap) { c.Data = map[string]string{"value": "yes"} }); err != nil {
				t.Fatal(err)
			}
			policy := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: own}, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
				ParamKind:        &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
				MatchConstraints: matchResources(test.namespace, test.group, test.resource), Mutations: []admissionregistrationv1.Mutation{test.mutation},
				ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			}}
			expect.Create(t, annexPolicies.MutatingAdmissionPolicies(), policy)
			t.Cleanup(func() { deleteQuietly(t, annexPolicies.MutatingAdmissionPolicies().Delete, own) })
			binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: own}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
				PolicyName: own, ParamRef: &admissionregistrationv1.ParamRef{Name: "values", Namespace: own, ParameterNotFoundAction: new(admissionregistrationv1.DenyAction)}}}
			expect.Create(t, annexPolicies.MutatingAdmissionPolicyBindings(), binding)
			t.Cleanup(func() { deleteQuietly(t, annexPolicies.MutatingAdmissionPolicyBindings().Delete, own) })
			path := "/api/v1/namespaces/" + test.namespace + "/configmaps?dryRun=All"
			body := `{"metadata":{"name":"changed"}}`
			if test.group != "" {
				path = "/apis/" + test.group + "/v1/namespaces/" + test.namespace + "/" + test.resource + "?dryRun=All"
				body = fmt.Sprintf(`{"apiVersion":"%s/v1","kind":%q,"metadata":{"name":"changed"},"spec":{"tags":["a"]}}`, test.group, "Widget")
			}
			poll.UntilDone(t, "an object is changed", func() (bool, string) {
				answer := a.request(t, http.MethodPost, path, body)
				done := answer.Code == http.StatusCreated && strings.Contains(answer.String(), `"set":"yes"`) && (test.group == "" || strings.Contains(answer.String(), `"size":3`))
				return done, answer.String()
			})
		})
	}
}
