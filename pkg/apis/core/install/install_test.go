// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	"github.com/annex-dev/annex/pkg/apis/core/install"
	annexcorev1 "github.com/annex-dev/annex/pkg/apis/core/v1"
)

// fuzzers fill objects with what decoding would have made of them.
func fuzzers(serializer.CodecFactory) []any {
	return []any{
		func(namespace *corev1.Namespace, c randfill.Continue) {
			c.FillNoCustom(namespace)
			annexcorev1.SetDefaultsNamespace(namespace)
		},
		func(secret *corev1.Secret, c randfill.Continue) {
			c.FillNoCustom(secret)
			annexcorev1.SetDefaultsSecret(secret)
		},
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	roundtrip.RoundTripTestForAPIGroup(t, install.Install, fuzzers)
	roundtrip.RoundTripProtobufTestForAPIGroup(t, install.Install, fuzzers)
}

func decode(t *testing.T, manifest string) runtime.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	object, err := runtime.Decode(serializer.NewCodecFactory(scheme).UniversalDecoder(schema.GroupVersion{Version: runtime.APIVersionInternal}), []byte(manifest))
	if err != nil {
		t.Fatalf("decode %s: %v", manifest, err)
	}
	return object
}

func TestDefaultsAtDecode(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		manifest string
		want     runtime.Object
	}{
		{
			name:     "namespace",
			manifest: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`,
			want: &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"kubernetes.io/metadata.name": "a"}},
				Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
			},
		},
		{
			name:     "namespace whose label lies",
			manifest: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a","labels":{"kubernetes.io/metadata.name":"b"}},"status":{"phase":"Terminating"}}`,
			want: &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"kubernetes.io/metadata.name": "a"}},
				Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
			},
		},
		{
			name:     "namespace without a name yet",
			manifest: `{"apiVersion":"v1","kind":"Namespace","metadata":{"generateName":"a-"}}`,
			want: &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"},
				Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
			},
		},
		{
			name:     "secret: stringData over data",
			manifest: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"k":"b2xk","l":"bA=="},"stringData":{"k":"new"}}`,
			want: &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "a"},
				Data:       map[string][]byte{"k": []byte("new"), "l": []byte("l")},
				Type:       corev1.SecretTypeOpaque,
			},
		},
		{
			name:     "secret: stringData alone, type kept",
			manifest: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"type":"x","stringData":{"k":""}}`,
			want: &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "a"},
				Data:       map[string][]byte{"k": {}},
				Type:       "x",
			},
		},
		{
			name:     "list",
			manifest: `{"apiVersion":"v1","kind":"SecretList","items":[{"metadata":{"name":"a"},"stringData":{"k":"v"}}]}`,
			want: &corev1.SecretList{Items: []corev1.Secret{{
				ObjectMeta: metav1.ObjectMeta{Name: "a"},
				Data:       map[string][]byte{"k": []byte("v")},
				Type:       corev1.SecretTypeOpaque,
			}}},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, decode(t, test.manifest)); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFieldLabels(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	tests := []struct {
		kind, label string
		ok          bool
	}{
		{"Namespace", "status.phase", true},
		{"Namespace", "metadata.name", true},
		{"Namespace", "spec.finalizers", false},
		{"Secret", "type", true},
		{"Secret", "metadata.namespace", true},
		{"Secret", "data", false},
		{"Event", "involvedObject.uid", true},
		{"Event", "reportingComponent", true},
		{"Event", "source", true},
		{"Event", "regarding.name", false},
		{"ConfigMap", "metadata.name", true},
		{"ConfigMap", "data", false},
		{"ServiceAccount", "metadata.namespace", true},
	}
	for _, test := range tests {
		label, value, err := scheme.ConvertFieldLabel(corev1.SchemeGroupVersion.WithKind(test.kind), test.label, "v")
		if ok := err == nil; ok != test.ok {
			t.Errorf("%s %s: error %v, want supported: %t", test.kind, test.label, err, test.ok)
		}
		if test.ok && (label != test.label || value != "v") {
			t.Errorf("%s %s: converted to %s=%s", test.kind, test.label, label, value)
		}
	}
}
