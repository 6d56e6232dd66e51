// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/apis/core/validation"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// subdomainMessage is the start of the error for an invalid name.
const subdomainMessage = "a lowercase RFC 1123 subdomain must consist of"

func meta(mutate ...func(*metav1.ObjectMeta)) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: "a", Namespace: "ns", ResourceVersion: "1"}
	for _, f := range mutate {
		f(&m)
	}
	return m
}

func clusterScoped(m *metav1.ObjectMeta) { m.Namespace = "" }

func named(name string) func(*metav1.ObjectMeta) {
	return func(m *metav1.ObjectMeta) { m.Name = name }
}

func finalizers(f ...string) func(*metav1.ObjectMeta) {
	return func(m *metav1.ObjectMeta) { m.Finalizers = f }
}

func TestValidateNamespace(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		namespace corev1.Namespace
		want      []string
	}{
		{name: "valid", namespace: corev1.Namespace{
			ObjectMeta: meta(clusterScoped, finalizers("foregroundDeletion", "annex.dev/x")),
			Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes", "example.com/one"}},
		}},
		{
			name: "dot in name", namespace: corev1.Namespace{ObjectMeta: meta(clusterScoped, named("a.b"))},
			want: []string{`metadata.name: Invalid value: "a.b": must not contain dots`},
		},
		{
			name: "upper case", namespace: corev1.Namespace{ObjectMeta: meta(clusterScoped, named("A"))},
			want: []string{`metadata.name: Invalid value: "A": a lowercase RFC 1123 label must consist of`},
		},
		{
			name: "in a namespace", namespace: corev1.Namespace{ObjectMeta: meta()},
			want: []string{"metadata.namespace: Forbidden: not allowed on this type"},
		},
		{
			name: "unqualified finalizers", namespace: corev1.Namespace{
				ObjectMeta: meta(clusterScoped, finalizers("mine")),
				Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"yours"}},
			},
			want: []string{
				`metadata.finalizers[0]: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified`,
				`spec.finalizers: Invalid value: "yours": name is neither a standard finalizer name nor is it fully qualified`,
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			expect.FieldErrors(t, validation.ValidateNamespace(&test.namespace), test.want...)
		})
	}
}

func TestValidateNamespaceStatusUpdate(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	tests := []struct {
		name    string
		phase   corev1.NamespacePhase
		deleted *metav1.Time
		want    []string
	}{
		{name: "active", phase: corev1.NamespaceActive},
		{name: "terminating", phase: corev1.NamespaceTerminating, deleted: &now},
		{
			name: "terminating but not deleted", phase: corev1.NamespaceTerminating,
			want: []string{"status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"},
		},
		{
			name: "active but deleted", phase: corev1.NamespaceActive, deleted: &now,
			want: []string{"status.Phase: Invalid value: \"Active\": may only be 'Terminating' if `deletionTimestamp` is not empty"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			namespace := &corev1.Namespace{ObjectMeta: meta(clusterScoped), Status: corev1.NamespaceStatus{Phase: test.phase}}
			namespace.DeletionTimestamp = test.deleted
			expect.FieldErrors(t, validation.ValidateNamespaceStatusUpdate(namespace), test.want...)
		})
	}
}

func TestValidateNamespaceFinalizeUpdate(t *testing.T) {
	t.Parallel()
	namespace := &corev1.Namespace{ObjectMeta: meta(clusterScoped), Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"a.com/b", "c"}}}
	expect.FieldErrors(t, validation.ValidateNamespaceFinalizeUpdate(namespace),
		`spec.finalizers[1]: Invalid value: "c": name is neither a standard finalizer name nor is it fully qualified`)
}

func TestValidateConfigMap(t *testing.T) {
	t.Parallel()
	half := strings.Repeat("x", corev1.MaxSecretSize/2)
	tests := []struct {
		name      string
		configMap corev1.ConfigMap
		want      []string
	}{
		{name: "valid", configMap: corev1.ConfigMap{
			ObjectMeta: meta(), Data: map[string]string{"a.b-c_D": half}, BinaryData: map[string][]byte{"b": []byte(half)},
		}},
		{
			name: "name", configMap: corev1.ConfigMap{ObjectMeta: meta(named("a_b"))},
			want: []string{`metadata.name: Invalid value: "a_b": ` + subdomainMessage},
		},
		{
			name: "no namespace", configMap: corev1.ConfigMap{ObjectMeta: meta(clusterScoped)},
			want: []string{"metadata.namespace: Required value"},
		},
		{
			name: "keys", configMap: corev1.ConfigMap{
				ObjectMeta: meta(), Data: map[string]string{"..": "", "a b": ""}, BinaryData: map[string][]byte{"": nil},
			},
			want: []string{
				`data[..]: Invalid value: "..": must not be '..'`,
				`data[a b]: Invalid value: "a b": a valid config key must consist of alphanumeric characters`,
				`binaryData[]: Invalid value: "": a valid config key must consist of alphanumeric characters`,
			},
		},
		{
			name: "key twice", configMap: corev1.ConfigMap{
				ObjectMeta: meta(), Data: map[string]string{"k": "a"}, BinaryData: map[string][]byte{"k": []byte("b")},
			},
			want: []string{`data[k]: Invalid value: "k": duplicate of key present in binaryData`},
		},
		{
			name: "size", configMap: corev1.ConfigMap{
				ObjectMeta: meta(), Data: map[string]string{"a": half}, BinaryData: map[string][]byte{"b": []byte(half + "x")},
			},
			want: []string{"[]: Too long: may not be more than 1048576 bytes"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			expect.FieldErrors(t, validation.ValidateConfigMap(&test.configMap), test.want...)
		})
	}
}

func TestValidateConfigMapUpdate(t *testing.T) {
	t.Parallel()
	base := corev1.ConfigMap{ObjectMeta: meta(), Data: map[string]string{"a": "1"}, BinaryData: map[string][]byte{"b": []byte("1")}}
	const immutable = ": Forbidden: field is immutable when `immutable` is set"
	tests := []struct {
		name      string
		immutable *bool
		mutate    func(*corev1.ConfigMap)
		want      []string
	}{
		{name: "mutable", mutate: func(c *corev1.ConfigMap) { c.Data["a"] = "2" }},
		{name: "becomes immutable", mutate: func(c *corev1.ConfigMap) { c.Immutable, c.Data["a"] = new(true), "2" }},
		{name: "labels of an immutable one", immutable: new(true), mutate: func(c *corev1.ConfigMap) { c.Labels = map[string]string{"x": "y"} }},
		{
			name: "immutable", immutable: new(true),
			mutate: func(c *corev1.ConfigMap) { c.Immutable, c.Data, c.BinaryData["b"] = nil, nil, []byte("2") },
			want:   []string{"immutable" + immutable, "data" + immutable, "binaryData" + immutable},
		},
		{name: "not valid any more", mutate: func(c *corev1.ConfigMap) { c.Data["a/b"] = "" }, want: []string{`data[a/b]: Invalid value: "a/b"`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			oldConfigMap := base.DeepCopy()
			oldConfigMap.Immutable = test.immutable
			newConfigMap := oldConfigMap.DeepCopy()
			test.mutate(newConfigMap)
			expect.FieldErrors(t, validation.ValidateConfigMapUpdate(newConfigMap, oldConfigMap), test.want...)
		})
	}
}

func TestValidateServiceAccount(t *testing.T) {
	t.Parallel()
	expect.FieldErrors(t, validation.ValidateServiceAccount(&corev1.ServiceAccount{ObjectMeta: meta(named("system.a"))}))
	expect.FieldErrors(t, validation.ValidateServiceAccount(&corev1.ServiceAccount{ObjectMeta: meta(named("A"))}),
		`metadata.name: Invalid value: "A": `+subdomainMessage)
}
