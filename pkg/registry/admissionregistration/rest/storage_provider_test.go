// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rest_test

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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/utils/ptr"

	annexadmissionregistrationv1 "github.com/annex-dev/annex/pkg/apis/admissionregistration/v1"
	admissionregistrationrest "github.com/annex-dev/annex/pkg/registry/admissionregistration/rest"
	"github.com/annex-dev/annex/pkg/registry/typed/typedtest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// rights are those of a caller, as "verb group/version/resource namespace/name".
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
func newGroup(t *testing.T, allowed callers) (map[string]rest.Storage, *typedtest.Storage) {
	t.Helper()
	etcd := typedtest.NewStorage(t, admissionregistrationv1.SchemeGroupVersion)
	return etcd.NewGroup(t, admissionregistrationrest.StorageProvider{Serialization: typedtest.Serialization, Authorizer: allowed, Resources: resources{}}), etcd
}

func as(t *testing.T, name string, groups ...string) context.Context {
	t.Helper()
	return genericapirequest.WithUser(genericapirequest.WithNamespace(t.Context(), ""), &user.DefaultInfo{Name: name, Groups: groups})
}

func create(ctx context.Context, endpoint rest.Storage, object runtime.Object) (runtime.Object, error) {
	return endpoint.(rest.Creater).Create(ctx, object, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
}

func put(ctx context.Context, endpoint rest.Storage, object runtime.Object) (runtime.Object, error) {
	name := object.(metav1.Object).GetName()
	updated, _, err := endpoint.(rest.Updater).Update(ctx, name, rest.DefaultUpdatedObjectInfo(object),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	return updated, err
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

func validatingPolicy(params *admissionregistrationv1.ParamKind) *admissionregistrationv1.ValidatingAdmissionPolicy {
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "policy"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: match(), ParamKind: params, Validations: []admissionregistrationv1.Validation{{Expression: "true"}},
		},
	}
	annexadmissionregistrationv1.SetDefaultsValidatingAdmissionPolicy(policy)
	return policy
}

func mutatingPolicy(params *admissionregistrationv1.ParamKind) *admissionregistrationv1.MutatingAdmissionPolicy {
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "policy"},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: match(), ParamKind: params, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{PatchType: "JSONPatch", JSONPatch: &admissionregistrationv1.JSONPatch{Expression: `[JSONPatch{op: "remove", path: "/data"}]`}}},
		},
	}
	annexadmissionregistrationv1.SetDefaultsMutatingAdmissionPolicy(policy)
	return policy
}

func validatingBinding(params *admissionregistrationv1.ParamRef) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "binding"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "policy", ParamRef: params, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
	}
}

func mutatingBinding(params *admissionregistrationv1.ParamRef) *admissionregistrationv1.MutatingAdmissionPolicyBinding {
	return &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "binding"},
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "policy", ParamRef: params},
	}
}

func webhooks(client admissionregistrationv1.WebhookClientConfig) *admissionregistrationv1.ValidatingWebhookConfiguration {
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hooks"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "hook.example.com", ClientConfig: client, Rules: []admissionregistrationv1.RuleWithOperations{rule()},
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}}},
	}
	annexadmissionregistrationv1.SetDefaultsValidatingWebhookConfiguration(configuration)
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
	ctx := as(t, "admin", user.SystemPrivilegedGroup)
	params := &admissionregistrationv1.ParamRef{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, ParameterNotFoundAction: ptr.To(admissionregistrationv1.DenyAction)}
	named := &admissionregistrationv1.ParamRef{Name: "n", Namespace: "ns", ParameterNotFoundAction: ptr.To(admissionregistrationv1.DenyAction)}
	kind := &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	client := admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:8443/")}
	mutatingHooks := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "hooks"}}
	for _, test := range []struct {
		resource string
		object   runtime.Object
		cells    []any
	}{
		{"validatingadmissionpolicies", validatingPolicy(kind), []any{"policy", int64(1), "v1/ConfigMap"}},
		{"mutatingadmissionpolicies", mutatingPolicy(nil), []any{"policy", int64(1), "<unset>"}},
		{"validatingadmissionpolicybindings", validatingBinding(params), []any{"binding", "policy", "a=b"}},
		{"mutatingadmissionpolicybindings", mutatingBinding(named), []any{"binding", "policy", "ns/n"}},
		{"validatingwebhookconfigurations", webhooks(client), []any{"hooks", int64(1)}},
		{"mutatingwebhookconfigurations", mutatingHooks, []any{"hooks", int64(0)}},
	} {
		endpoint := group[test.resource]
		created, err := create(ctx, endpoint, test.object)
		if err != nil {
			t.Errorf("%s: %v", test.resource, err)
			continue
		}
		if generation := created.(metav1.Object).GetGeneration(); generation != 1 {
			t.Errorf("%s: the generation is %d at first, want 1", test.resource, generation)
		}
		if name := created.(metav1.Object).GetName(); etcd.Stored(t, test.resource, name) == nil {
			t.Errorf("%s is not stored under /%s/%s", test.resource, test.resource, name)
		}
		table, err := endpoint.(rest.TableConvertor).ConvertToTable(ctx, created, nil)
		expect.NoError(t, err)
		expect.Equal(t, test.cells, table.Rows[0].Cells[:len(test.cells)], "%s: cells", test.resource)
		if categories := endpoint.(rest.CategoriesProvider).Categories(); !slices.Equal(categories, []string{"api-extensions"}) {
			t.Errorf("%s: categories %v, want api-extensions", test.resource, categories)
		}
		reserved := test.object.DeepCopyObject()
		reserved.(metav1.Object).SetName("a.static.k8s.io")
		if _, err := create(ctx, endpoint, reserved); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "are reserved") {
			t.Errorf("%s: reserved name: %v, want invalid", test.resource, err)
		}
	}
}

func TestStatusAndGeneration(t *testing.T) {
	t.Parallel()
	group, _ := newGroup(t, nil)
	main, status := group["validatingadmissionpolicies"], group["validatingadmissionpolicies/status"]
	ctx := as(t, "admin", user.SystemPrivilegedGroup)
	policy := validatingPolicy(nil)
	policy.Status.ObservedGeneration = 7
	must := func(object runtime.Object, err error) *admissionregistrationv1.ValidatingAdmissionPolicy {
		t.Helper()
		expect.NoError(t, err)
		return object.(*admissionregistrationv1.ValidatingAdmissionPolicy).DeepCopy()
	}
	policy = must(create(ctx, main, policy))
	if policy.Status.ObservedGeneration != 0 {
		t.Error("a create sets the status")
	}
	policy.Status.ObservedGeneration, policy.Spec.Validations[0].Message = 1, "m"
	updated := must(put(ctx, main, policy))
	if updated.Generation != 2 || updated.Status.ObservedGeneration != 0 {
		t.Errorf("after a change of the spec: generation %d, observed %d; want 2, 0", updated.Generation, updated.Status.ObservedGeneration)
	}
	updated.Status.ObservedGeneration, updated.Spec.Validations[0].Message = 2, "other"
	checked := must(put(ctx, status, updated))
	if checked.Generation != 2 || checked.Status.ObservedGeneration != 2 || checked.Spec.Validations[0].Message != "m" {
		t.Errorf("after a change of the status: generation %d, observed %d, message %q; want 2, 2, m",
			checked.Generation, checked.Status.ObservedGeneration, checked.Spec.Validations[0].Message)
	}
	checked.ResourceVersion = ""
	if _, err := put(ctx, main, checked); !apierrors.IsInvalid(err) {
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
	ctx := warning.WithWarningRecorder(as(t, "admin", user.SystemPrivilegedGroup), warnings)
	service := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "ns", Name: "hook"}}
	created, err := create(ctx, group["validatingwebhookconfigurations"], webhooks(service))
	expect.NoError(t, err)
	const want = "webhooks[0].clientConfig.service: a standalone annex has no Services to reach ns/hook: calls will fail, and the webhook's failurePolicy applies; set webhooks[0].clientConfig.url instead"
	expect.Equal(t, &recorder{want}, warnings, "warnings")
	repaired := created.(*admissionregistrationv1.ValidatingWebhookConfiguration).DeepCopy()
	repaired.Webhooks[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:8443/")}
	*warnings = nil
	updated, err := put(ctx, group["validatingwebhookconfigurations"], repaired)
	expect.NoError(t, err)
	if len(*warnings) > 0 || updated.(metav1.Object).GetGeneration() != 2 {
		t.Errorf("repaired: warnings %v, generation %d; want none, 2", *warnings, updated.(metav1.Object).GetGeneration())
	}
}

func TestParamAccess(t *testing.T) {
	t.Parallel()
	configMaps := &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	unknown := &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "Widget"}
	deny := ptr.To(admissionregistrationv1.DenyAction)
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
			validating, mutating := validatingBinding(test.params), mutatingBinding(test.params)
			validating.Spec.PolicyName, mutating.Spec.PolicyName = objectName, objectName
			for _, kinds := range []struct {
				prefix          string
				policy, binding runtime.Object
			}{
				{"validating", validatingPolicy(test.kind), validating},
				{"mutating", mutatingPolicy(test.kind), mutating},
			} {
				kinds.policy.(metav1.Object).SetName(objectName)
				kinds.binding.(metav1.Object).SetName(objectName)
				policies, bindings := group[kinds.prefix+"admissionpolicies"], group[kinds.prefix+"admissionpolicybindings"]
				_, err := create(as(t, name), policies, kinds.policy.DeepCopyObject())
				refused(t, kinds.prefix+" policy", err, test.policy)
				if err != nil {
					// An administrator creates it for the caller.
					stored, err := create(as(t, "admin", user.SystemPrivilegedGroup), policies, kinds.policy)
					expect.NoError(t, err)
					stored.(metav1.Object).SetLabels(map[string]string{"a": "b"})
					if _, err := put(as(t, name), policies, stored); err != nil {
						t.Errorf("changing something else of the policy: %v", err)
					}
				}
				_, err = create(as(t, name), bindings, kinds.binding)
				refused(t, kinds.prefix+" binding", err, test.binding)
			}
		})
	}
	t.Run("user required", func(t *testing.T) {
		anonymous := genericapirequest.WithNamespace(t.Context(), "")
		_, err := create(anonymous, group["validatingadmissionpolicies"], validatingPolicy(configMaps))
		refused(t, "a policy", err, "cannot identify user")
		_, err = create(anonymous, group["validatingadmissionpolicybindings"], validatingBinding(named))
		refused(t, "a binding", err, "cannot identify user")
		_, err = create(as(t, "alice"), group["validatingadmissionpolicybindings"], validatingBinding(named))
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
