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
		{name: "group of one word", change: withName("deployments.apps"), want: []string{at("metadata.name", invalid)}},
		{name: "Secrets of a namespace", change: withName("kube-system.secrets"), want: []string{at("metadata.name", invalid)}},
		{name: "namespace", change: func(h *hostingv1alpha1.HostedResource) { h.Namespace = "a" }, want: []string{at("metadata.namespace", forbidden)}},
		{name: "no group", change: withName("widgets"), want: []string{at("metadata.name", invalid)}},
		{name: "empty group", change: withName("widgets."), want: []string{at("metadata.name", invalid)}},
		{name: "empty plural", change: withName(".example.com"), want: []string{at("metadata.name", invalid)}},
		{name: "plural begins with a digit", change: withName("2widgets.example.com"), want: []string{at("metadata.name", invalid)}},
		{name: "upper case", change: withName("Widgets.example.com"), want: []string{at("metadata.name", invalid)}},
		{name: "bad group", change: withName("widgets.example_com"), want: []string{at("metadata.name", invalid)}},
		{
			// Each part is short enough, the whole is not.
			name:   "too long",
			change: withName("widgets." + strings.Repeat("a.", 124) + "a"),
			want:   []string{at("metadata.name", invalid)},
		},

		{name: "bad store name", change: func(h *hostingv1alpha1.HostedResource) { h.Spec.StoreName = "A" }, want: []string{at("spec.storeName", invalid)}},
		{
			name: "bad selector",
			change: func(h *hostingv1alpha1.HostedResource) {
				h.Spec.StoreSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "disk", Operator: "Like"}}}
			},
			want: []string{at("spec.storeSelector.matchExpressions[0].operator", invalid)},
		},
		{name: "no selector", change: func(h *hostingv1alpha1.HostedResource) { h.Spec.StoreSelector = nil }},

		{name: "tolerate a key", change: withTolerations(hostingv1alpha1.Toleration{Key: "a", Operator: hostingv1alpha1.TolerationOpExists})},
		{
			name:   "empty toleration",
			change: withTolerations(hostingv1alpha1.Toleration{}),
			want:   []string{at(toleration+".operator", required), at(toleration+".operator", invalid)},
		},
		{
			name:   "equal to no key",
			change: withTolerations(hostingv1alpha1.Toleration{Operator: hostingv1alpha1.TolerationOpEqual, Value: "a"}),
			want:   []string{at(toleration+".operator", invalid)},
		},
		{
			name:   "exists with a value",
			change: withTolerations(hostingv1alpha1.Toleration{Key: "a", Operator: hostingv1alpha1.TolerationOpExists, Value: "b"}),
			want:   []string{at(toleration+".value", invalid)},
		},
		{
			name:   "unknown words",
			change: withTolerations(hostingv1alpha1.Toleration{Key: "a b", Operator: "Lt", Value: "c d", Effect: "NoExecute"}),
			want: []string{
				at(toleration+".key", invalid), at(toleration+".operator", notSupported),
				at(toleration+".value", invalid), at(toleration+".effect", notSupported),
			},
		},

		{
			name: "negative request",
			change: func(h *hostingv1alpha1.HostedResource) {
				h.Spec.Requests = hostingv1alpha1.ResourceList{hostingv1alpha1.ResourceObjects: resource.MustParse("-1")}
			},
			want: []string{at("spec.requests[objects]", invalid)},
		},
		{name: "server's compression", change: func(h *hostingv1alpha1.HostedResource) { h.Spec.Compression = "" }},
		{name: "unknown compression", change: func(h *hostingv1alpha1.HostedResource) { h.Spec.Compression = "Lzw" }, want: []string{at("spec.compression", notSupported)}},
		{name: "unknown cache", change: func(h *hostingv1alpha1.HostedResource) { h.Spec.Cache = "Full" }, want: []string{at("spec.cache", notSupported)}},
		{name: "no scheduler", change: func(h *hostingv1alpha1.HostedResource) { h.Spec.SchedulerName = "" }, want: []string{at("spec.schedulerName", required)}},
		{name: "bad scheduler", change: func(h *hostingv1alpha1.HostedResource) { h.Spec.SchedulerName = "a/b" }, want: []string{at("spec.schedulerName", invalid)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			hosted := hostedResource()
			test.change(hosted)
			expectErrors(t, test.want, ValidateHostedResource(hosted))
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
		{name: "set", to: "default", want: []string{at("spec.storeName", forbidden)}},
		{name: "kept", from: "default", to: "default"},
		{name: "changed", from: "default", to: "fast", want: []string{at("spec.storeName", invalid)}},
		{name: "taken back", from: "default", want: []string{at("spec.storeName", invalid)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			old, updated := hostedResource(), hostedResource()
			old.Spec.StoreName, updated.Spec.StoreName = test.from, test.to
			expectErrors(t, test.want, ValidateHostedResourceUpdate(updated, old))
		})
	}
}

func TestValidateHostedResourceUpdate(t *testing.T) {
	t.Parallel()
	updated := hostedResource()
	updated.Spec.Compression = "Lzw"
	expectErrors(t, []string{at("spec.compression", notSupported)}, ValidateHostedResourceUpdate(updated, hostedResource()))
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
		"the last finalizer":               {deleted("1", "a.com/x"), deleted("1"), []string{at("metadata.finalizers", forbidden)}},
		"one of two":                       {deleted("1", "a.com/x", "a.com/y"), deleted("1", "a.com/y"), nil},
		"the last one of one out of use":   {deleted("", "a.com/x"), deleted(""), nil},
		"the last one of one that is kept": {hostedResource(), hostedResource(), nil},
	} {
		expectErrors(t, test.want, ValidateHostedResourceUpdate(test.to, test.from))
		if t.Failed() {
			t.Fatal(name)
		}
	}
	expectErrors(t, []string{at("status.definitionUID", forbidden)}, ValidateHostedResourceStatusUpdate(deleted("1", "a.com/x"), deleted("", "a.com/x")))
	expectErrors(t, nil, ValidateHostedResourceStatusUpdate(deleted("", "a.com/x"), deleted("1", "a.com/x")))
	expectErrors(t, nil, ValidateHostedResourceStatusUpdate(deleted("1", "a.com/x"), deleted("1", "a.com/x")))
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
		{name: "unknown phase", status: hostingv1alpha1.HostedResourceStatus{Phase: "Lost"}, want: []string{at("status.phase", notSupported)}},
		{
			name:   "same condition twice",
			status: hostingv1alpha1.HostedResourceStatus{Conditions: []metav1.Condition{readyCondition, readyCondition}},
			want:   []string{at("status.conditions[1]", duplicate)},
		},
		{
			name:   "negative",
			status: hostingv1alpha1.HostedResourceStatus{Objects: -1, Bytes: -1, StoredBytes: -1, CachedBytes: -1},
			want:   []string{at("status.objects", invalid), at("status.bytes", invalid), at("status.storedBytes", invalid), at("status.cachedBytes", invalid)},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			updated := hostedResource()
			updated.Status = test.status
			expectErrors(t, test.want, ValidateHostedResourceStatusUpdate(updated, hostedResource()))
		})
	}
}
