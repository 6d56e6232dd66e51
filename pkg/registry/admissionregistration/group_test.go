// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"

	"github.com/annex-dev/annex/pkg/apis/scheme"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/registry/typed/typedtest"
	"github.com/annex-dev/annex/pkg/table"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// rights are the rights of a caller, as "verb group/version/resource namespace/name".
type rights []string

// callers has the rights of each caller.
type callers map[string]rights

func (c callers) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	asked := a.GetVerb() + " " + a.GetAPIGroup() + "/" + a.GetAPIVersion() + "/" + a.GetResource() + " " + a.GetNamespace() + "/" + a.GetName()
	if slices.Contains(c[a.GetUser().GetName()], asked) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// resources lists only configmaps.
type resources struct{}

func (resources) ServerResourcesForGroupVersionWithContext(_ context.Context, groupVersion string) (*metav1.APIResourceList, error) {
	if groupVersion != "v1" {
		return nil, errors.New("not found")
	}
	return &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "configmaps/status", Kind: "ConfigMap"}, {Name: "configmaps", Kind: "ConfigMap"}}}, nil
}

// newGroup returns the storage of the group.
func newGroup(t *testing.T, allowed callers) (typed.Endpoints, *typedtest.Storage) {
	t.Helper()
	etcd := typedtest.NewStorage(t, admissionregistrationv1.SchemeGroupVersion)
	return etcd.Endpoints(NewGroup(etcd, allowed, resources{})), etcd
}

func match() *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: rule()}}}
}

func rule() admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}
}

func newValidatingPolicy(params *admissionregistrationv1.ParamKind) *validatingPolicy {
	policy := &validatingPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "policy"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: match(), ParamKind: params, Validations: []admissionregistrationv1.Validation{{Expression: "true"}},
		},
	}
	scheme.Scheme.Default(policy)
	return policy
}

func newMutatingPolicy(params *admissionregistrationv1.ParamKind) *mutatingPolicy {
	policy := &mutatingPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "policy"},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: match(), ParamKind: params, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{PatchType: "JSONPatch", JSONPatch: &admissionregistrationv1.JSONPatch{Expression: `[JSONPatch{op: "remove", path: "/data"}]`}}},
		},
	}
	scheme.Scheme.Default(policy)
	return policy
}

func newValidatingBinding(params *admissionregistrationv1.ParamRef) *validatingBinding {
	return &validatingBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "binding"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "policy", ParamRef: params, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
	}
}

func newMutatingBinding(params *admissionregistrationv1.ParamRef) *mutatingBinding {
	return &mutatingBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "binding"},
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "policy", ParamRef: params},
	}
}

func webhooks(client admissionregistrationv1.WebhookClientConfig) *validatingConfiguration {
	configuration := &validatingConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hooks"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "hook.example.com", ClientConfig: client, Rules: []admissionregistrationv1.RuleWithOperations{rule()},
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}}},
	}
	scheme.Scheme.Default(configuration)
	return configuration
}

func TestServed(t *testing.T) {
	t.Parallel()
	group, etcd := newGroup(t, nil)
	want := []string{
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations",
		"validatingadmissionpolicies", "validatingadmissionpolicies/status", "validatingadmissionpolicybindings", "validatingwebhookconfigurations",
	}
	if got := slices.Sorted(maps.Keys(group)); !slices.Equal(got, want) {
		t.Errorf("the group serves %v, want %v", got, want)
	}
	ctx := typedtest.RequestAs(t, "", "admin", user.SystemPrivilegedGroup)
	params := &admissionregistrationv1.ParamRef{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, ParameterNotFoundAction: new(admissionregistrationv1.DenyAction)}
	named := &admissionregistrationv1.ParamRef{Name: "n", Namespace: "ns", ParameterNotFoundAction: new(admissionregistrationv1.DenyAction)}
	kind := &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	client := admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:8443/")}
	mutatingHooks := &mutatingConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "hooks"}}
	for _, test := range []struct {
		resource string
		object   table.Object
		cells    []any
	}{
		{"validatingadmissionpolicies", newValidatingPolicy(kind), []any{"policy", int64(1), "v1/ConfigMap"}},
		{"mutatingadmissionpolicies", newMutatingPolicy(nil), []any{"policy", int64(1), "<unset>"}},
		{"validatingadmissionpolicybindings", newValidatingBinding(params), []any{"binding", "policy", "a=b"}},
		{"mutatingadmissionpolicybindings", newMutatingBinding(named), []any{"binding", "policy", "ns/n"}},
		{"validatingwebhookconfigurations", webhooks(client), []any{"hooks", int64(1)}},
		{"mutatingwebhookconfigurations", mutatingHooks, []any{"hooks", int64(0)}},
	} {
		endpoint := group[test.resource]
		created, err := typedtest.Create(ctx, endpoint, test.object)
		if err != nil {
			t.Errorf("%s: %v", test.resource, err)
			continue
		}
		if generation := created.GetGeneration(); generation != 1 {
			t.Errorf("%s: the generation is %d at first, want 1", test.resource, generation)
		}
		if name := created.GetName(); etcd.Stored(t, test.resource, name) == nil {
			t.Errorf("%s is not stored under /%s/%s", test.resource, test.resource, name)
		}
		expect.Equal(t, test.cells, typedtest.Cells(t, endpoint.(rest.TableConvertor), created)[0][:len(test.cells)], "%s: cells", test.resource)
		if categories := endpoint.(rest.CategoriesProvider).Categories(); !slices.Equal(categories, []string{"api-extensions"}) {
			t.Errorf("%s: categories %v, want api-extensions", test.resource, categories)
		}
		reserved := test.object.DeepCopyObject().(table.Object)
		reserved.SetName("a.static.k8s.io")
		if _, err := typedtest.Create(ctx, endpoint, reserved); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "are reserved") {
			t.Errorf("%s: reserved name: %v, want invalid", test.resource, err)
		}
	}
}

func TestStatusOfPolicies(t *testing.T) {
	t.Parallel()
	group, _ := newGroup(t, nil)
	policy := newValidatingPolicy(nil)
	policy.Status.ObservedGeneration = 7
	created := typedtest.CheckStatus(t, group, "validatingadmissionpolicies", policy,
		func(policy *validatingPolicy) {
			policy.Spec.Validations[0].Message, policy.Status.ObservedGeneration = "m", 1
		},
		func(policy *validatingPolicy) {
			policy.Spec.Validations, policy.Status.Conditions = nil, []metav1.Condition{{Type: "?"}}
		})
	expect.Equal(t, admissionregistrationv1.ValidatingAdmissionPolicyStatus{}, created.Status, "status of a new policy")
	created.ResourceVersion = ""
	if _, err := typedtest.Update(typedtest.Request(t, ""), group["validatingadmissionpolicies"], created); !apierrors.IsInvalid(err) {
		t.Errorf("an update without resource version: %v, want invalid", err)
	}
}

// recorder records warnings.
type recorder []string

func (r *recorder) AddWarning(_, text string) { *r = append(*r, text) }

func TestWarningForWebhooksOfServices(t *testing.T) {
	t.Parallel()
	group, _ := newGroup(t, nil)
	warnings := &recorder{}
	ctx := warning.WithWarningRecorder(typedtest.RequestAs(t, "", "admin", user.SystemPrivilegedGroup), warnings)
	service := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "ns", Name: "hook"}}
	created, err := typedtest.Create(ctx, group["validatingwebhookconfigurations"], webhooks(service))
	expect.NoError(t, err)
	const want = "webhooks[0].clientConfig.service: a standalone annex has no Services to reach ns/hook: calls will fail, and the webhook's failurePolicy applies; set webhooks[0].clientConfig.url instead"
	expect.Equal(t, &recorder{want}, warnings, "warnings")
	repaired := created.DeepCopy()
	repaired.Webhooks[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:8443/")}
	*warnings = nil
	updated, err := typedtest.Update(ctx, group["validatingwebhookconfigurations"], repaired)
	expect.NoError(t, err)
	if len(*warnings) > 0 || updated.GetGeneration() != 2 {
		t.Errorf("repaired: warnings %v, generation %d; want none, 2", *warnings, updated.GetGeneration())
	}
}

func TestParamAccess(t *testing.T) {
	t.Parallel()
	configMaps := &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	unknown := &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "Widget"}
	deny := new(admissionregistrationv1.DenyAction)
	named := &admissionregistrationv1.ParamRef{Name: "n", Namespace: "ns", ParameterNotFoundAction: deny}
	selected := &admissionregistrationv1.ParamRef{Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: deny}
	tests := map[string]struct {
		rights rights
		kind   *admissionregistrationv1.ParamKind
		params *admissionregistrationv1.ParamRef
		// policy and binding are the errors, empty if accepted.
		policy, binding string
	}{
		"nothing to read":           {nil, nil, nil, "", ""},
		"may read all":              {rights{"get /v1/configmaps */*", "get /v1/configmaps ns/n"}, configMaps, named, "", ""},
		"may read what is bound":    {rights{"get /v1/configmaps ns/n"}, configMaps, named, `must have "get" permission on all objects of the referenced paramKind (kind=ConfigMap, apiVersion=v1)`, ""},
		"may get, not list":         {rights{"get /v1/configmaps */*"}, configMaps, selected, "", `does not have "list" permission on the object referenced by paramRef`},
		"may list":                  {rights{"get /v1/configmaps */*", "list /v1/configmaps /"}, configMaps, selected, "", ""},
		"a kind that is not served": {rights{"get /v1/configmaps */*"}, unknown, named, "must have", `unable to resolve paramKind`},
		"may read all of a version": {rights{"get /v1/* */*", "get /v1/* ns/n"}, unknown, named, "", ""},
	}
	allowed := callers{}
	for name, test := range tests {
		allowed[name] = test.rights
	}
	group, _ := newGroup(t, allowed)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			objectName := strings.NewReplacer(" ", "-", ",", "").Replace(name)
			validating, mutating := newValidatingBinding(test.params), newMutatingBinding(test.params)
			validating.Spec.PolicyName, mutating.Spec.PolicyName = objectName, objectName
			for _, kinds := range []struct {
				prefix          string
				policy, binding table.Object
			}{
				{"validating", newValidatingPolicy(test.kind), validating},
				{"mutating", newMutatingPolicy(test.kind), mutating},
			} {
				kinds.policy.SetName(objectName)
				kinds.binding.SetName(objectName)
				policies, bindings := group[kinds.prefix+"admissionpolicies"], group[kinds.prefix+"admissionpolicybindings"]
				_, err := typedtest.Create(typedtest.RequestAs(t, "", name), policies, kinds.policy.DeepCopyObject().(table.Object))
				refused(t, kinds.prefix+" policy", err, test.policy)
				if err != nil {
					// An administrator creates it for the caller.
					stored, err := typedtest.Create(typedtest.RequestAs(t, "", "admin", user.SystemPrivilegedGroup), policies, kinds.policy)
					expect.NoError(t, err)
					stored.SetLabels(map[string]string{"a": "b"})
					if _, err := typedtest.Update(typedtest.RequestAs(t, "", name), policies, stored); err != nil {
						t.Errorf("changing something else of the policy: %v", err)
					}
				}
				_, err = typedtest.Create(typedtest.RequestAs(t, "", name), bindings, kinds.binding)
				refused(t, kinds.prefix+" binding", err, test.binding)
			}
		})
	}
	t.Run("user required", func(t *testing.T) {
		anonymous := typedtest.Request(t, "")
		_, err := typedtest.Create(anonymous, group["validatingadmissionpolicies"], newValidatingPolicy(configMaps))
		refused(t, "a policy", err, "cannot identify user")
		_, err = typedtest.Create(anonymous, group["validatingadmissionpolicybindings"], newValidatingBinding(named))
		refused(t, "a binding", err, "cannot identify user")
		_, err = typedtest.Create(typedtest.RequestAs(t, "", "alice"), group["validatingadmissionpolicybindings"], newValidatingBinding(named))
		refused(t, "a binding without a policy", err, "unable to get policy policy to determine minimum required permissions")
	})
}

// refused fails unless err contains want, or is nil if want is empty.
func refused(t *testing.T, what string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: got %v, want it refused with %q", what, err, want)
	}
}
