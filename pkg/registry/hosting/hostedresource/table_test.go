// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestTable(t *testing.T) {
	t.Parallel()
	created := metav1.NewTime(time.Now().Add(-36 * time.Hour))
	tests := []struct {
		name   string
		hosted *hostingv1alpha1.HostedResource
		want   []any
	}{
		{
			name: "pending",
			hosted: &hostingv1alpha1.HostedResource{
				ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", CreationTimestamp: created},
				Status: hostingv1alpha1.HostedResourceStatus{
					Phase:      hostingv1alpha1.HostedResourcePending,
					Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "NotDefined"}},
				},
			},
			want: []any{"widgets.example.com", "<none>", "Pending", int64(0), "0", "36h", "0", "<none>", "<unknown>", "<none>", "NotDefined"},
		},
		{
			name: "hosted",
			hosted: &hostingv1alpha1.HostedResource{
				ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", CreationTimestamp: created},
				Spec:       hostingv1alpha1.HostedResourceSpec{StoreName: "default"},
				Status: hostingv1alpha1.HostedResourceStatus{
					Phase:      hostingv1alpha1.HostedResourceHosted,
					Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Served"}},
					Objects:    1234, Bytes: 1258291, StoredBytes: 524288, CachedBytes: 10 << 20,
				},
			},
			want: []any{"widgets.example.com", "default", "Hosted", int64(1234), "1.2Mi", "36h", "512Ki", "<none>", "10Mi", "<none>", ""},
		},
		{
			name: "not following",
			hosted: &hostingv1alpha1.HostedResource{
				ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", CreationTimestamp: created},
				Spec:       hostingv1alpha1.HostedResourceSpec{StoreName: "default"},
				Status: hostingv1alpha1.HostedResourceStatus{
					Phase: hostingv1alpha1.HostedResourceHosted,
					Conditions: []metav1.Condition{
						{Type: "DefinitionSynced", Status: metav1.ConditionFalse, Reason: "Rejected"},
						{Type: "Published", Status: metav1.ConditionTrue, Reason: "Published"},
						{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Served"},
					},
				},
			},
			want: []any{"widgets.example.com", "default", "Hosted", int64(0), "0", "36h", "0", "<none>", "<unknown>", "True", "Rejected"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := tableConvertor.ConvertToTable(t.Context(), test.hosted, nil)
			expect.NoError(t, err, "ConvertToTable")
			expect.Equal(t, test.want, got.Rows[0].Cells, "cells")
		})
	}
}

func TestLimitsColumn(t *testing.T) {
	t.Parallel()
	objects := hostingv1alpha1.ResourceList{hostingv1alpha1.ResourceObjects: resource.MustParse("8")}
	both := hostingv1alpha1.ResourceList{hostingv1alpha1.ResourceObjects: resource.MustParse("8"), hostingv1alpha1.ResourceStorage: resource.MustParse("1Ki")}
	for name, tc := range map[string]struct {
		whole, namespace hostingv1alpha1.ResourceList
		reason           string
		want             any
	}{
		"none":               {want: "<none>"},
		"no condition":       {whole: objects, want: "<unknown>"},
		"room":               {whole: objects, reason: "BelowLimits", want: "25%"},
		"the fullest counts": {whole: both, reason: "BelowLimits", want: "50%"},
		"in namespaces":      {namespace: objects, reason: "BelowLimits", want: "BelowLimits"},
		"reached":            {whole: both, reason: "NamespaceLimitReached", want: "NamespaceLimitReached"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hosted := &hostingv1alpha1.HostedResource{
				Spec:   hostingv1alpha1.HostedResourceSpec{Limits: tc.whole, NamespaceLimits: tc.namespace},
				Status: hostingv1alpha1.HostedResourceStatus{Objects: 2, StoredBytes: 512},
			}
			if tc.reason != "" {
				status := metav1.ConditionFalse
				if tc.reason == "BelowLimits" {
					status = metav1.ConditionTrue
				}
				hosted.Status.Conditions = []metav1.Condition{{Type: hostingv1alpha1.HostedResourceWithinLimits, Status: status, Reason: tc.reason}}
			}
			if got := limits(hosted); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestColumns(t *testing.T) {
	t.Parallel()
	got, err := tableConvertor.ConvertToTable(t.Context(), &hostingv1alpha1.HostedResourceList{}, nil)
	expect.NoError(t, err, "ConvertToTable")
	var always, wide []string
	for _, column := range got.ColumnDefinitions {
		if column.Priority == 0 {
			always = append(always, column.Name)
		} else {
			wide = append(wide, column.Name)
		}
	}
	expect.Equal(t, []string{"Name", "Store", "Phase", "Objects", "Bytes", "Age"}, always, "columns")
	expect.Equal(t, []string{"Stored", "Limits", "Cached", "Published", "Reason"}, wide, "wide columns")
}
