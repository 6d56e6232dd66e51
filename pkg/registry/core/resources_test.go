// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/cert"

	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/registry/typed/typedtest"
	"github.com/annex-dev/annex/pkg/standalone/serviceaccount"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func newQuota() *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "q", Namespace: "ns"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"secrets": resource.MustParse("5"), "limits.cpu": resource.MustParse("2")}},
		Status: corev1.ResourceQuotaStatus{
			Hard: corev1.ResourceList{"secrets": resource.MustParse("5"), "configmaps": resource.MustParse("1"), "limits.cpu": resource.MustParse("2")},
			Used: corev1.ResourceList{"secrets": resource.MustParse("3")},
		},
	}
}

func TestQuotaEndpoints(t *testing.T) {
	t.Parallel()
	etcd := typedtest.NewStorage(t, corev1.SchemeGroupVersion)
	created := typedtest.CheckStatus(t, etcd.Endpoints(NewGroup(etcd, 0, serviceaccount.TokenConfig{})), "resourcequotas", newQuota(),
		func(quota *corev1.ResourceQuota) {
			quota.Spec.Hard["secrets"] = resource.MustParse("6")
			quota.Status.Used = corev1.ResourceList{"secrets": resource.MustParse("1")}
		},
		func(quota *corev1.ResourceQuota) {
			quota.Spec.Hard["secrets"] = resource.MustParse("-1")
			quota.Status.Used["secrets"] = resource.MustParse("-1")
		})
	expect.Equal(t, corev1.ResourceQuotaStatus{}, created.Status, "status of a new quota")
}

func TestTables(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(time.Now().Add(-d)) }
	old := metav1.ObjectMeta{Name: "a", CreationTimestamp: ago(36 * time.Hour)}
	for name, test := range map[string]struct {
		resource typed.Resource
		object   runtime.Object
		want     []any
	}{
		"ConfigMap": {configMaps, &corev1.ConfigMap{ObjectMeta: old, Data: map[string]string{"k": ""}, BinaryData: map[string][]byte{"l": nil}},
			[]any{"a", int64(2), "36h"}},
		"Secret": {secrets, &corev1.Secret{ObjectMeta: old, Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"k": nil, "l": nil}},
			[]any{"a", "Opaque", int64(2), "36h"}},
		"ServiceAccount": {serviceAccounts, &corev1.ServiceAccount{ObjectMeta: old}, []any{"a", "36h"}},
		"Namespace":      {namespaces, &corev1.Namespace{ObjectMeta: old, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}, []any{"a", "Active", "36h"}},
		"ResourceQuota":  {resourceQuotas, newQuota(), []any{"q", "configmaps: 0/1, secrets: 3/5", "limits.cpu: 0/2", "<unknown>"}},
		"old Event": {
			events(0), &corev1.Event{
				ObjectMeta: old, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p", FieldPath: "spec.x"},
				FirstTimestamp: ago(3 * time.Hour), LastTimestamp: ago(time.Hour), Count: 5,
				Source: corev1.EventSource{Component: "kubelet", Host: "node"}, Type: "Warning", Reason: "Failed", Message: " m\n",
			},
			[]any{"60m", "Warning", "Failed", "pod/p", "spec.x", "kubelet, node", "m", "3h", int64(5), "a"},
		},
		"new Event": {
			events(0), &corev1.Event{
				ObjectMeta: old, InvolvedObject: corev1.ObjectReference{Kind: "Pod"}, EventTime: metav1.MicroTime(ago(3 * time.Hour)),
				ReportingController: "a.com/c", ReportingInstance: "c-0", Type: "Normal", Reason: "Made", Message: "m",
			},
			[]any{"3h", "Normal", "Made", "pod", "", "a.com/c, c-0", "m", "3h", int64(1), "a"},
		},
		"series of Events": {
			events(0), &corev1.Event{
				ObjectMeta: old, EventTime: metav1.MicroTime(ago(3 * time.Hour)), ReportingController: "a.com/c",
				Series: &corev1.EventSeries{Count: 9, LastObservedTime: metav1.MicroTime(ago(20 * time.Minute))},
			},
			[]any{"20m", "", "", "", "", "a.com/c", "", "3h", int64(9), "a"},
		},
		"Event without any time": {events(0), &corev1.Event{ObjectMeta: old}, []any{"<unknown>", "", "", "", "", "", "", "<unknown>", int64(1), "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect.Equal(t, [][]any{test.want}, typedtest.Cells(t, test.resource.Table, test.object), "cells")
		})
	}
	always, _ := typedtest.Columns(t, events(0).Table, &corev1.Event{})
	expect.Equal(t, []string{"Last Seen", "Type", "Reason", "Object", "Message"}, always, "columns of events without -o wide")
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	expect.NoError(t, err, "generate a certificate")
	scoped := newQuota()
	scoped.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}
	for name, test := range map[string]struct {
		resource typed.Resource
		object   runtime.Object
		want     []string
	}{
		"TLS pair": {secrets, &corev1.Secret{
			Type: corev1.SecretTypeTLS, Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}}, nil},
		"TLS without certificate": {secrets, &corev1.Secret{
			Type: corev1.SecretTypeTLS, Data: map[string][]byte{corev1.TLSPrivateKeyKey: key}}, []string{"tls: failed to find any PEM data in certificate input"}},
		"other Secret": {secrets, &corev1.Secret{Type: corev1.SecretTypeOpaque}, nil},
		"quota": {resourceQuotas, scoped, []string{
			"spec.hard[limits.cpu]: annex serves nothing that this counts",
			"spec.scopes, spec.scopeSelector: a quota with scopes counts only pods and volume claims, which annex does not serve",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect.Equal(t, test.want, test.resource.Strategy.WarningsOnCreate(t.Context(), test.object), "warnings")
		})
	}
}

func TestUpdatesAreValidated(t *testing.T) {
	t.Parallel()
	meta := metav1.ObjectMeta{Name: "a", Namespace: "ns", ResourceVersion: "1"}
	for name, test := range map[string]struct {
		resource         typed.Resource
		updated, old     runtime.Object
		onCreate, update int
	}{
		"immutable ConfigMap": {configMaps, &corev1.ConfigMap{ObjectMeta: meta, Immutable: new(true), Data: map[string]string{"k": "v"}},
			&corev1.ConfigMap{ObjectMeta: meta, Immutable: new(true)}, 0, 1},
		"Secret without its key": {secrets, &corev1.Secret{ObjectMeta: meta, Type: corev1.SecretTypeSSHAuth}, &corev1.Secret{ObjectMeta: meta}, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if errs := test.resource.Strategy.Validate(t.Context(), test.updated); len(errs) != test.onCreate {
				t.Errorf("create: %v, want %d errors", errs, test.onCreate)
			}
			if errs := test.resource.Strategy.ValidateUpdate(t.Context(), test.updated, test.old); len(errs) != test.update {
				t.Errorf("update: %v, want %d errors", errs, test.update)
			}
		})
	}
}

func TestServiceAccountsKeepSecretNamesOnly(t *testing.T) {
	t.Parallel()
	account := &corev1.ServiceAccount{Secrets: []corev1.ObjectReference{{Kind: "Secret", Namespace: "other", Name: "s", UID: "u"}, {Name: "t"}}}
	updated := account.DeepCopy()
	serviceAccounts.Strategy.PrepareForCreate(t.Context(), account)
	serviceAccounts.Strategy.PrepareForUpdate(t.Context(), updated, account)
	want := []corev1.ObjectReference{{Name: "s"}, {Name: "t"}}
	if !slices.Equal(account.Secrets, want) || !slices.Equal(updated.Secrets, want) {
		t.Errorf("created with %v, updated with %v; want %v", account.Secrets, updated.Secrets, want)
	}
}
