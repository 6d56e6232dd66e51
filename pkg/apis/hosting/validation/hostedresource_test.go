// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func hostedResource() *hostingv1alpha1.HostedResource {
	return &hostingv1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", ResourceVersion: "1"},
		Spec: hostingv1alpha1.HostedResourceSpec{
			StoreSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "ssd"}},
			Tolerations: []hostingv1alpha1.Toleration{
				{Operator: hostingv1alpha1.TolerationOpExists},
				{Key: "annex.dev/heavy", Operator: hostingv1alpha1.TolerationOpEqual, Value: "yes", Effect: hostingv1alpha1.TaintEffectNoSchedule},
			},
			Priority:      -5,
			Requests:      hostingv1alpha1.ResourceList{hostingv1alpha1.ResourceStorage: resource.MustParse("2Gi")},
			Compression:   hostingv1alpha1.CompressionZstd,
			SchedulerName: "annex-scheduler",
		},
	}
}

func withTolerations(tolerations ...hostingv1alpha1.Toleration) func(*hostingv1alpha1.HostedResource) {
	return func(h *hostingv1alpha1.HostedResource) { h.Spec.Tolerations = tolerations }
}

func withName(name string) func(*hostingv1alpha1.HostedResource) {
	return func(h *hostingv1alpha1.HostedResource) { h.Name = name }
}

func TestValidateHostedResource(t *testing.T) {
	t.Parallel()
	const toleration = "spec.tolerations[0]"
	tests := []struct {
		name   string
		change func(*hostingv1alpha1.HostedResource)
		want   []string
	}{
		{name: "valid", change: func(*hostingv1alpha1.HostedResource) {}},
		{name: "placed", change: func(h *hostingv1alpha1.HostedResource) { h.Spec.StoreName = "default" }},
		{name: "group of one word", change: withName("deployments.apps"), want: []string{"metadata.name: Invalid value"}},
		{name: "Secrets of a namespace", change: withName("kube-system.secrets"), want: []string{"metadata.name: Invalid value"}},
		{name: "namespace", change: func(h *hostingv1alpha1.HostedResource) { h.Namespace = "a" }, want: []string{"metadata.namespace: Forbidden"}},
		{name: "no group", change: withName("widgets"), want: []string{"metadata.name: Invalid value"}},
		{name: "empty group", change: withName("widgets."), want: []string{"metadata.name: Invalid value"}},
		{name: "empty plural", change: withName(".example.com"), want: []string{"metadata.name: Invalid value"}},
		{name: "plural begins with a digit", change: withName("2widgets.example.com"), want: []string{"metadata.name: Invalid value"}},
		{name: "upper case", change: withName("Widgets.example.com"), want: []string{"metadata.name: Invalid value"}},
		{name: "bad group", change: withName("widgets.example_com"), want: []string{"metadata.name: Invalid value"}},
		{
			// Each part is short enough, the whole is not.
			name:   "too long",
			change: withName("widgets." + strings.Repeat("a.", 124) + "a"),
			want:   []string{"metadata.name: Invalid value"},
		},

		{name: "bad store name", change: func(h *hostingv1alpha1.HostedResource) { h.Spec.StoreName = "A" }, want: []string{"spec.storeName: Invalid value"}},
		{
			name: "bad selector",
			change: func(h *hostingv1alpha1.HostedResource) {
				h.Spec.StoreSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "disk", Operator: "Like"}}}
			},
			want: []string{"spec.storeSelector.matchExpressions[0].operator: Invalid value"},
		},
		{name: "no selector", change: func(h *hostingv1alpha1.HostedResource) { h.Spec.StoreSelector = nil }},

		{name: "tolerate a key", change: withTolerations(hostingv1alpha1.Toleration{Key: "a", Operator: hostingv1alpha1.TolerationOpExists})},
		{
			name:   "empty toleration",
			change: withTolerations(hostingv1alpha1.Toleration{}),
			want:   []string{toleration + ".operator: Invalid value", toleration + ".operator: Required value"},
		},
		{
			name:   "equal to no key",
			change: withTolerations(hostingv1alpha1.Toleration{Operator: hostingv1alpha1.TolerationOpEqual, Value: "a"}),
			want:   []string{toleration + ".operator: Invalid value"},
		},
		{
			name:   "exists with a value",
			change: withTolerations(hostingv1alpha1.Toleration{Key: "a", Operator: hostingv1alpha1.TolerationOpExists, Value: "b"}),
			want:   []string{toleration + ".value: Invalid value"},
		},
		{
			name:   "unknown words",
			change: withTolerations(hostingv1alpha1.Toleration{Key: "a b", Operator: "Lt", Value: "c d", Effect: "NoExecute"}),
			want: []string{
				toleration + ".key: Invalid value", toleration + ".operator: Unsupported value",
				toleration + ".value: Invalid value", toleration + ".effect: Unsupported value",
			},
		},

		{
			name: "negative request",
			change: func(h *hostingv1alpha1.HostedResource) {
				h.Spec.Requests = hostingv1alpha1.ResourceList{hostingv1alpha1.ResourceObjects: resource.MustParse("-1")}
			},
			want: []string{"spec.requests[objects]: Invalid value"},
		},
		{name: "server's compression", change: func(h *hostingv1alpha1.HostedResource) { h.Spec.Compression = "" }},
		{name: "unknown compression", change: func(h *hostingv1alpha1.HostedResource) { h.Spec.Compression = "Lzw" }, want: []string{"spec.compression: Unsupported value"}},
		{name: "unknown cache", change: func(h *hostingv1alpha1.HostedResource) { h.Spec.Cache = "Full" }, want: []string{"spec.cache: Unsupported value"}},
		{name: "no scheduler", change: func(h *hostingv1alpha1.HostedResource) { h.Spec.SchedulerName = "" }, want: []string{"spec.schedulerName: Required value"}},
		{name: "bad scheduler", change: func(h *hostingv1alpha1.HostedResource) { h.Spec.SchedulerName = "a/b" }, want: []string{"spec.schedulerName: Invalid value"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			hosted := hostedResource()
			test.change(hosted)
			expect.FieldErrors(t, ValidateHostedResource(hosted), test.want...)
		})
	}
}

func TestStoreNameIsSetOnce(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		from, to string
		want     []string
	}{
		{name: "still open"},
		{name: "set", to: "default", want: []string{"spec.storeName: Forbidden"}},
		{name: "kept", from: "default", to: "default"},
		{name: "changed", from: "default", to: "fast", want: []string{"spec.storeName: Invalid value"}},
		{name: "taken back", from: "default", want: []string{"spec.storeName: Invalid value"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			old, updated := hostedResource(), hostedResource()
			old.Spec.StoreName, updated.Spec.StoreName = test.from, test.to
			expect.FieldErrors(t, ValidateHostedResourceUpdate(updated, old), test.want...)
		})
	}
}

func TestValidateHostedResourceUpdate(t *testing.T) {
	t.Parallel()
	updated := hostedResource()
	updated.Spec.Compression = "Lzw"
	expect.FieldErrors(t, ValidateHostedResourceUpdate(updated, hostedResource()), "spec.compression: Unsupported value")
}

// Only the HostedResource records the Store of the objects.
func TestAHostedResourceInUseStays(t *testing.T) {
	t.Parallel()
	deleted := func(definition types.UID, finalizers ...string) *hostingv1alpha1.HostedResource {
		hosted := hostedResource()
		hosted.DeletionTimestamp, hosted.Finalizers, hosted.Status.DefinitionUID = new(metav1.Unix(1, 0)), finalizers, definition
		return hosted
	}
	for name, test := range map[string]struct {
		from, to *hostingv1alpha1.HostedResource
		want     []string
	}{
		"the last finalizer":               {deleted("1", "a.com/x"), deleted("1"), []string{"metadata.finalizers: Forbidden"}},
		"one of two":                       {deleted("1", "a.com/x", "a.com/y"), deleted("1", "a.com/y"), nil},
		"the last one of one out of use":   {deleted("", "a.com/x"), deleted(""), nil},
		"the last one of one that is kept": {hostedResource(), hostedResource(), nil},
	} {
		expect.FieldErrors(t, ValidateHostedResourceUpdate(test.to, test.from), test.want...)
		if t.Failed() {
			t.Fatal(name)
		}
	}
	expect.FieldErrors(t, ValidateHostedResourceStatusUpdate(deleted("1", "a.com/x"), deleted("", "a.com/x")), "status.definitionUID: Forbidden")
	expect.FieldErrors(t, ValidateHostedResourceStatusUpdate(deleted("", "a.com/x"), deleted("1", "a.com/x")))
	expect.FieldErrors(t, ValidateHostedResourceStatusUpdate(deleted("1", "a.com/x"), deleted("1", "a.com/x")))
}

func TestValidateHostedResourceStatusUpdate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		status hostingv1alpha1.HostedResourceStatus
		want   []string
	}{
		{name: "empty"},
		{
			name: "full",
			status: hostingv1alpha1.HostedResourceStatus{
				Phase:      hostingv1alpha1.HostedResourceHosted,
				Conditions: []metav1.Condition{readyCondition},
				Objects:    3, Bytes: 4096, StoredBytes: 1024, CachedBytes: 20480,
			},
		},
		{name: "unknown phase", status: hostingv1alpha1.HostedResourceStatus{Phase: "Lost"}, want: []string{"status.phase: Unsupported value"}},
		{
			name:   "same condition twice",
			status: hostingv1alpha1.HostedResourceStatus{Conditions: []metav1.Condition{readyCondition, readyCondition}},
			want:   []string{"status.conditions[1]: Duplicate value"},
		},
		{
			name:   "negative",
			status: hostingv1alpha1.HostedResourceStatus{Objects: -1, Bytes: -1, StoredBytes: -1, CachedBytes: -1},
			want:   []string{"status.objects: Invalid value", "status.bytes: Invalid value", "status.storedBytes: Invalid value", "status.cachedBytes: Invalid value"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			updated := hostedResource()
			updated.Status = test.status
			expect.FieldErrors(t, ValidateHostedResourceStatusUpdate(updated, hostedResource()), test.want...)
		})
	}
}
