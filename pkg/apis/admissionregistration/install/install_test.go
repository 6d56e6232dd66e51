// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/randfill"

	"github.com/annex-dev/annex/pkg/apis/admissionregistration/install"
	annexadmissionregistrationv1 "github.com/annex-dev/annex/pkg/apis/admissionregistration/v1"
)

// defaulted returns a fuzzer that fills objects with what decoding would have
// made of them.
func defaulted[T any](setDefaults func(*T)) any {
	return func(object *T, c randfill.Continue) {
		c.FillNoCustom(object)
		setDefaults(object)
	}
}

func fuzzers(serializer.CodecFactory) []any {
	return []any{
		defaulted(annexadmissionregistrationv1.SetDefaultsValidatingWebhookConfiguration),
		defaulted(annexadmissionregistrationv1.SetDefaultsMutatingWebhookConfiguration),
		defaulted(annexadmissionregistrationv1.SetDefaultsValidatingAdmissionPolicy),
		defaulted(annexadmissionregistrationv1.SetDefaultsValidatingAdmissionPolicyBinding),
		defaulted(annexadmissionregistrationv1.SetDefaultsMutatingAdmissionPolicy),
		defaulted(annexadmissionregistrationv1.SetDefaultsMutatingAdmissionPolicyBinding),
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	roundtrip.RoundTripTestForAPIGroup(t, install.Install, fuzzers)
	roundtrip.RoundTripProtobufTestForAPIGroup(t, install.Install, fuzzers)
}

func TestDefaultsAtDecode(t *testing.T) {
	t.Parallel()
	rule := admissionregistrationv1.Rule{Scope: ptr.To(admissionregistrationv1.AllScopes)}
	match := &admissionregistrationv1.MatchResources{
		MatchPolicy: ptr.To(admissionregistrationv1.Equivalent), NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
		ResourceRules:        []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{Rule: rule}}},
		ExcludeResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{Rule: rule}}},
	}
	const matched = `{"resourceRules":[{}],"excludeResourceRules":[{}]}`
	const hook = `{"webhooks":[{"rules":[{}],"clientConfig":{"service":{}}}]`
	client := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Port: ptr.To[int32](443)}}
	rules := []admissionregistrationv1.RuleWithOperations{{Rule: rule}}
	fail := ptr.To(admissionregistrationv1.Fail)

	tests := map[string]struct {
		manifest string
		want     runtime.Object
	}{
		"ValidatingWebhookConfiguration": {hook, &admissionregistrationv1.ValidatingWebhookConfiguration{
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Rules: rules, ClientConfig: client, FailurePolicy: fail, MatchPolicy: match.MatchPolicy, TimeoutSeconds: ptr.To[int32](10),
				NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
			}}}},
		"MutatingWebhookConfiguration": {hook, &admissionregistrationv1.MutatingWebhookConfiguration{
			Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Rules: rules, ClientConfig: client, FailurePolicy: fail, MatchPolicy: match.MatchPolicy, TimeoutSeconds: ptr.To[int32](10),
				NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
				ReinvocationPolicy: ptr.To(admissionregistrationv1.NeverReinvocationPolicy),
			}}}},
		"ValidatingAdmissionPolicy": {`{"spec":{"matchConstraints":` + matched + `}`, &admissionregistrationv1.ValidatingAdmissionPolicy{
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{FailurePolicy: fail, MatchConstraints: match}}},
		"ValidatingAdmissionPolicyBinding": {`{"spec":{"matchResources":` + matched + `}`, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{MatchResources: match}}},
		"MutatingAdmissionPolicy": {`{"spec":{"matchConstraints":` + matched + `}`, &admissionregistrationv1.MutatingAdmissionPolicy{
			Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{FailurePolicy: fail, MatchConstraints: match}}},
		"MutatingAdmissionPolicyBinding": {`{"spec":{"matchResources":` + matched + `}`, &admissionregistrationv1.MutatingAdmissionPolicyBinding{
			Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{MatchResources: match}}},
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	decoder := serializer.NewCodecFactory(scheme).UniversalDecoder(schema.GroupVersion{Group: admissionregistrationv1.GroupName, Version: runtime.APIVersionInternal})
	for kind, test := range tests {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			item := test.manifest + `,"apiVersion":"admissionregistration.k8s.io/v1","kind":"` + kind + `"}`
			got, err := runtime.Decode(decoder, []byte(item))
			if err != nil {
				t.Fatalf("decode %s: %v", item, err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("alone (-want +got):\n%s", diff)
			}
			list := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"` + kind + `List","items":[` + item + `]}`
			decoded, err := runtime.Decode(decoder, []byte(list))
			if err != nil {
				t.Fatalf("decode %s: %v", list, err)
			}
			items, err := runtime.DefaultUnstructuredConverter.ToUnstructured(decoded)
			if err != nil {
				t.Fatal(err)
			}
			single, err := runtime.DefaultUnstructuredConverter.ToUnstructured(test.want)
			if err != nil {
				t.Fatal(err)
			}
			inList := items["items"].([]any)[0].(map[string]any)
			for _, field := range []string{"apiVersion", "kind"} {
				delete(inList, field)
			}
			if diff := cmp.Diff(single, inList); diff != "" {
				t.Errorf("in a list (-want +got):\n%s", diff)
			}
		})
	}
}
