// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	crdfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	webhookinitializer "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	utilcompatibility "k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/discovery"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/openapi/openapitest"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/admission/plugin/errorlimit"
	"github.com/annex-dev/annex/pkg/admission/plugin/sidecarinjection"
	"github.com/annex-dev/annex/pkg/admission/plugin/staticobjects"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/test/expect"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// others returns policies and webhooks for configmaps, not for widgets.
func others() []runtime.Object {
	rule := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}, Scope: new(admissionregistrationv1.AllScopes)},
	}
	match := &admissionregistrationv1.MatchResources{
		MatchPolicy: new(admissionregistrationv1.Equivalent), NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: rule}},
	}
	named := metav1.ObjectMeta{Name: "other"}
	client := admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")}
	fail, all := new(admissionregistrationv1.Fail), &metav1.LabelSelector{}
	rules := []admissionregistrationv1.RuleWithOperations{rule}
	return []runtime.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: named, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: match, FailurePolicy: fail, Validations: []admissionregistrationv1.Validation{{Expression: "false"}}}},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "other", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}}},
		&admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: named, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: match, FailurePolicy: fail, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{PatchType: "JSONPatch", JSONPatch: &admissionregistrationv1.JSONPatch{Expression: `[JSONPatch{op: "remove", path: "/data"}]`}}}}},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: named, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "other"}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: named, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "v.example.com", ClientConfig: client, Rules: rules, FailurePolicy: fail, MatchPolicy: match.MatchPolicy, NamespaceSelector: all, ObjectSelector: all}}},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: named, Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "m.example.com", ClientConfig: client, Rules: rules, FailurePolicy: fail, MatchPolicy: match.MatchPolicy, NamespaceSelector: all, ObjectSelector: all}}},
	}
}

// published adds schemas to the fake cluster.
type published struct{ *fake.Clientset }

func (p published) Discovery() discovery.DiscoveryInterfaces {
	return schemas{p.Clientset.Discovery()}
}

type schemas struct{ discovery.DiscoveryInterfaces }

func (schemas) OpenAPIV3() openapi.Client { return openapitest.NewFakeClient() }

// newPlugin returns a plugin as annex creates it, without metrics, in a cluster with these
// objects.
func newPlugin(b *testing.B, name string, objects ...runtime.Object) admission.Interface {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	client := published{fake.NewClientset(objects...)}
	factory := informers.NewSharedInformerFactory(client, 0)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(widgets.GroupVersion().WithKind("Widget"), meta.RESTScopeNamespace)
	profiles := annexinformers.NewSharedInformerFactory(annexfake.NewClientset(), 0)
	definitions := crdinformers.NewSharedInformerFactory(crdfake.NewClientset(), 0)
	sources, err := sidecarinjection.NewSources(profiles.Hosting().V1alpha1().InjectionProfiles())
	expect.NoError(b, err)
	crds := definitions.Apiextensions().V1().CustomResourceDefinitions()
	sources.SetDefinitions(crds, crds)
	limited := &errorlimit.Definitions{}
	limited.Set(crds.Lister())
	unread := staticobjects.Reader(func(context.Context, schema.GroupVersionResource, string, string) (*metav1.PartialObjectMetadata, error) {
		return nil, errors.New("the widgets have no static objects")
	})
	chain := append(admission.PluginInitializers{
		sources, limited, unread, CompiledInGroups(sets.New("hosting.annex.dev")),
		initializer.New(client, dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), factory, authorizerfactory.NewAlwaysAllowAuthorizer(),
			utilfeature.DefaultFeatureGate, utilcompatibility.DefaultBuildEffectiveVersion(), ctx.Done(), mapper),
		webhookinitializer.NewPluginInitializer(webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, &restclient.Config{}, nil), webhook.NewDefaultServiceResolver()),
	}, Initializers()...)
	plugin, err := NewPlugins().InitPlugin(name, nil, chain)
	expect.NoError(b, err)
	for _, factory := range []interface {
		StartWithContext(ctx context.Context)
		Shutdown()
	}{factory, profiles, definitions} {
		factory.StartWithContext(ctx)
		b.Cleanup(factory.Shutdown)
	}
	factory.WaitForCacheSync(ctx.Done())
	b.Cleanup(cancel)
	return ExemptOwnWrites.Decorate(plugin, name)
}

// BenchmarkNotApplying measures each plugin with the write of a custom resource to which
// it does not apply, without policies, webhooks and quotas, and with some for other
// resources.
func BenchmarkNotApplying(b *testing.B) {
	for _, name := range Order() {
		for configured, objects := range map[string][]runtime.Object{"none": others()[:1], "others": others()} {
			b.Run(name+"/"+configured, func(b *testing.B) { benchmarkPlugin(b, newPlugin(b, name, objects...)) })
		}
	}
}

func benchmarkPlugin(b *testing.B, plugin admission.Interface) {
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w", "namespace": "default"}}}
	caller := &user.DefaultInfo{Name: "alice", Groups: []string{user.AllAuthenticated}}
	attributes := admission.NewAttributesRecord(widget, nil, widgets.GroupVersion().WithKind("Widget"), "default", "w", widgets, "",
		admission.Create, &metav1.CreateOptions{}, false, caller)
	objects := admission.NewObjectInterfacesFromScheme(runtime.NewScheme())
	ask := func(ctx context.Context) error {
		if mutator, ok := plugin.(admission.MutationInterface); ok && plugin.Handles(admission.Create) {
			if err := mutator.Admit(ctx, attributes, objects); err != nil {
				return err
			}
		}
		if validator, ok := plugin.(admission.ValidationInterface); ok && plugin.Handles(admission.Create) {
			return validator.Validate(ctx, attributes, objects)
		}
		return nil
	}
	ctx := b.Context()
	if err := ask(ctx); err != nil {
		b.Fatalf("refused: %v", err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := ask(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
