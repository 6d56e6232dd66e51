// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheme

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// decode returns the internal object of a manifest.
func decode(t *testing.T, group, manifest string) runtime.Object {
	t.Helper()
	internal := schema.GroupVersion{Group: group, Version: runtime.APIVersionInternal}
	object, err := runtime.Decode(Codecs.UniversalDecoder(internal), []byte(manifest))
	expect.NoError(t, err, "decode %s", manifest)
	return object
}

func TestDefaultsAtDecode(t *testing.T) {
	t.Parallel()
	rule := admissionregistrationv1.Rule{Scope: new(admissionregistrationv1.AllScopes)}
	match := &admissionregistrationv1.MatchResources{
		MatchPolicy: new(admissionregistrationv1.Equivalent), NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
		ResourceRules:        []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{Rule: rule}}},
		ExcludeResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{Rule: rule}}},
	}
	const matched = `{"resourceRules":[{}],"excludeResourceRules":[{}]}`
	const hook = `"webhooks":[{"rules":[{}],"clientConfig":{"service":{}}}]`
	client := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Port: new(int32(443))}}
	rules := []admissionregistrationv1.RuleWithOperations{{Rule: rule}}
	fail := new(admissionregistrationv1.Fail)
	named := metav1.ObjectMeta{Name: "a"}
	labelled := metav1.ObjectMeta{Name: "a", Labels: map[string]string{"kubernetes.io/metadata.name": "a"}}

	const bound = `"roleRef":{"kind":"Role","name":"r"},"subjects":[{"kind":"User","name":"u"},{"kind":"Group","name":"g"},` +
		`{"kind":"ServiceAccount","name":"s"},{"kind":"Other","name":"o"},{"kind":"User","name":"u","apiGroup":"example.com"}]`
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "r"}
	subjects := []rbacv1.Subject{
		{Kind: "User", Name: "u", APIGroup: rbacv1.GroupName}, {Kind: "Group", Name: "g", APIGroup: rbacv1.GroupName},
		{Kind: "ServiceAccount", Name: "s"}, {Kind: "Other", Name: "o"}, {Kind: "User", Name: "u", APIGroup: "example.com"},
	}

	for name, test := range map[string]struct {
		version schema.GroupVersion
		kind    string
		fields  string
		want    runtime.Object
	}{
		"namespace": {corev1.SchemeGroupVersion, "Namespace", `"metadata":{"name":"a"}`,
			&corev1.Namespace{ObjectMeta: labelled, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}},
		"namespace whose label lies": {corev1.SchemeGroupVersion, "Namespace",
			`"metadata":{"name":"a","labels":{"kubernetes.io/metadata.name":"b"}},"status":{"phase":"Terminating"}`,
			&corev1.Namespace{ObjectMeta: labelled, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}}},
		"namespace without a name yet": {corev1.SchemeGroupVersion, "Namespace", `"metadata":{"generateName":"a-"}`,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}},
		"secret: stringData over data": {corev1.SchemeGroupVersion, "Secret",
			`"metadata":{"name":"a"},"data":{"k":"b2xk","l":"bA=="},"stringData":{"k":"new"}`,
			&corev1.Secret{ObjectMeta: named, Data: map[string][]byte{"k": []byte("new"), "l": []byte("l")}, Type: corev1.SecretTypeOpaque}},
		"secret: stringData alone, type kept": {corev1.SchemeGroupVersion, "Secret", `"metadata":{"name":"a"},"type":"x","stringData":{"k":""}`,
			&corev1.Secret{ObjectMeta: named, Data: map[string][]byte{"k": {}}, Type: "x"}},
		"validating webhook": {admissionregistrationv1.SchemeGroupVersion, "ValidatingWebhookConfiguration", hook, &admissionregistrationv1.ValidatingWebhookConfiguration{
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Rules: rules, ClientConfig: client, FailurePolicy: fail, MatchPolicy: match.MatchPolicy, TimeoutSeconds: new(int32(10)),
				NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
			}}}},
		"mutating webhook": {admissionregistrationv1.SchemeGroupVersion, "MutatingWebhookConfiguration", hook, &admissionregistrationv1.MutatingWebhookConfiguration{
			Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Rules: rules, ClientConfig: client, FailurePolicy: fail, MatchPolicy: match.MatchPolicy, TimeoutSeconds: new(int32(10)),
				NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
				ReinvocationPolicy: new(admissionregistrationv1.NeverReinvocationPolicy),
			}}}},
		"validating policy": {admissionregistrationv1.SchemeGroupVersion, "ValidatingAdmissionPolicy", `"spec":{"matchConstraints":` + matched + `}`,
			&admissionregistrationv1.ValidatingAdmissionPolicy{Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{FailurePolicy: fail, MatchConstraints: match}}},
		"validating binding": {admissionregistrationv1.SchemeGroupVersion, "ValidatingAdmissionPolicyBinding", `"spec":{"matchResources":` + matched + `}`,
			&admissionregistrationv1.ValidatingAdmissionPolicyBinding{Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{MatchResources: match}}},
		"mutating policy": {admissionregistrationv1.SchemeGroupVersion, "MutatingAdmissionPolicy", `"spec":{"matchConstraints":` + matched + `}`,
			&admissionregistrationv1.MutatingAdmissionPolicy{Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{FailurePolicy: fail, MatchConstraints: match}}},
		"mutating binding": {admissionregistrationv1.SchemeGroupVersion, "MutatingAdmissionPolicyBinding", `"spec":{"matchResources":` + matched + `}`,
			&admissionregistrationv1.MutatingAdmissionPolicyBinding{Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{MatchResources: match}}},
		"role binding":         {rbacv1.SchemeGroupVersion, "RoleBinding", bound, &rbacv1.RoleBinding{RoleRef: ref, Subjects: subjects}},
		"cluster role binding": {rbacv1.SchemeGroupVersion, "ClusterRoleBinding", bound, &rbacv1.ClusterRoleBinding{RoleRef: ref, Subjects: subjects}},
		"embedded store": {hostingv1alpha1.SchemeGroupVersion, "Store", `"spec":{"embedded":{}}`,
			&hostingv1alpha1.Store{Spec: hostingv1alpha1.StoreSpec{Embedded: &hostingv1alpha1.EmbeddedStore{}}}},
		"etcd store": {hostingv1alpha1.SchemeGroupVersion, "Store", `"spec":{"etcd":{"tls":{}}}`,
			&hostingv1alpha1.Store{Spec: hostingv1alpha1.StoreSpec{Etcd: &hostingv1alpha1.EtcdStore{
				KeyPrefix: "/annex", TLS: &hostingv1alpha1.EtcdTLS{SecretRef: hostingv1alpha1.SecretReference{Namespace: "annex-system"}},
			}}}},
		"hosted resource": {hostingv1alpha1.SchemeGroupVersion, "HostedResource", `"spec":{"tolerations":[{"key":"a"}]}`,
			&hostingv1alpha1.HostedResource{Spec: hostingv1alpha1.HostedResourceSpec{
				Tolerations: []hostingv1alpha1.Toleration{{Key: "a", Operator: hostingv1alpha1.TolerationOpEqual}}, SchedulerName: "annex-scheduler",
			}}},
		"what is set stays": {hostingv1alpha1.SchemeGroupVersion, "HostedResource", `"spec":{"tolerations":[{"key":"a","operator":"Exists"}],"schedulerName":"mine"}`,
			&hostingv1alpha1.HostedResource{Spec: hostingv1alpha1.HostedResourceSpec{
				Tolerations: []hostingv1alpha1.Toleration{{Key: "a", Operator: hostingv1alpha1.TolerationOpExists}}, SchedulerName: "mine",
			}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			manifest := `{"apiVersion":"` + test.version.String() + `","kind":"` + test.kind + `",` + test.fields + `}`
			expect.Equal(t, test.want, decode(t, test.version.Group, manifest), "alone")
			list := decode(t, test.version.Group, `{"apiVersion":"`+test.version.String()+`","kind":"`+test.kind+`List","items":[`+manifest+`]}`)
			items, err := meta.ExtractList(list)
			expect.NoError(t, err)
			items[0].GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
			expect.Equal(t, test.want, items[0], "in a list")
		})
	}
}

func TestFieldLabels(t *testing.T) {
	t.Parallel()
	for kind, labels := range map[string]map[string]string{
		"Namespace.v1.": {"status.phase": "status.phase", "metadata.name": "metadata.name", "spec.finalizers": ""},
		"Secret.v1.":    {"type": "type", "metadata.namespace": "metadata.namespace", "data": ""},
		"Event.v1.": {
			"involvedObject.uid": "involvedObject.uid", "reportingComponent": "reportingComponent", "source": "source", "regarding.name": "",
		},
		"ConfigMap.v1.":      {"metadata.name": "metadata.name", "data": ""},
		"ServiceAccount.v1.": {"metadata.namespace": "metadata.namespace"},
		"Event.v1.events.k8s.io": {
			"regarding.name": "involvedObject.name", "reportingController": "reportingComponent", "reason": "reason",
			"metadata.namespace": "metadata.namespace", "involvedObject.name": "", "note": "",
		},
		"Store.v1alpha1.hosting.annex.dev":          {"metadata.name": "metadata.name", "spec.storeName": "", "metadata.uid": ""},
		"HostedResource.v1alpha1.hosting.annex.dev": {"metadata.name": "metadata.name", "spec.storeName": "spec.storeName", "status.phase": ""},
	} {
		gvk, _ := schema.ParseKindArg(kind)
		for label, want := range labels {
			got, value, err := Scheme.ConvertFieldLabel(*gvk, label, "v")
			if got != want || (err == nil) != (want != "") || err == nil && value != "v" {
				t.Errorf("%s %s: %q=%q, error %v; want %q", kind, label, got, value, err, want)
			}
		}
	}
}

// Objects are stored as v1 of the core group and read through either.
func TestEventsAreStoredThroughCore(t *testing.T) {
	t.Parallel()
	decoded := decode(t, "events.k8s.io",
		`{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"a"},"note":"n","regarding":{"name":"r"},"deprecatedCount":3,"series":{"count":2}}`)
	stored, err := runtime.Encode(Codecs.LegacyCodec(corev1.SchemeGroupVersion), decoded)
	expect.NoError(t, err, "encode as v1")
	read, gvk, err := Codecs.UniversalDeserializer().Decode(stored, nil, nil)
	expect.NoError(t, err, "decode what is stored")
	if want := corev1.SchemeGroupVersion.WithKind("Event"); *gvk != want {
		t.Errorf("stored as %s, want %s", gvk, want)
	}
	want := &corev1.Event{Message: "n", InvolvedObject: corev1.ObjectReference{Name: "r"}, Count: 3, Series: &corev1.EventSeries{Count: 2}}
	want.SetGroupVersionKind(*gvk)
	want.Name = "a"
	expect.Equal(t, want, read, "stored")
	kinds, _, err := Scheme.ObjectKinds(&corev1.Event{})
	if err != nil || kinds[0] != *gvk {
		t.Errorf("first kind of the type is %v (error %v), want %s: errors are worded with it", kinds, err, gvk)
	}
}
