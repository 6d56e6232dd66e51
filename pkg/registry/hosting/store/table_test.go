// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestTable(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		store *hostingv1alpha1.Store
		want  []any
	}{
		{
			name:  "never reached",
			store: &hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Spec: hostingv1alpha1.StoreSpec{Embedded: &hostingv1alpha1.EmbeddedStore{}}},
			want:  []any{"new", "Unknown", int64(0), int64(0), "<unknown>", "<unknown>", "<unknown>", "", "<unknown>", "<none>", int64(0), "embedded", "<none>"},
		},
		{
			name: "in use",
			store: &hostingv1alpha1.Store{
				ObjectMeta: metav1.ObjectMeta{Name: "fast", CreationTimestamp: metav1.NewTime(time.Now().Add(-36 * time.Hour))},
				Spec: hostingv1alpha1.StoreSpec{
					Etcd:          &hostingv1alpha1.EtcdStore{Endpoints: []string{"https://a:2379", "https://b:2379"}},
					Unschedulable: true,
					Taints: []hostingv1alpha1.Taint{
						{Key: "heavy", Effect: hostingv1alpha1.TaintEffectNoSchedule},
						{Key: "disk", Value: "hdd", Effect: hostingv1alpha1.TaintEffectPreferNoSchedule},
					},
				},
				Status: hostingv1alpha1.StoreStatus{
					Conditions: []metav1.Condition{
						{Type: "Other", Status: metav1.ConditionFalse}, {Type: "Ready", Status: metav1.ConditionTrue, Reason: "Degraded"},
						{Type: "UnderPressure", Status: metav1.ConditionTrue, Reason: "AlmostFull"},
					},
					DatabaseSize: ptr.To(resource.MustParse("1258291")),
					SizeInUse:    ptr.To(resource.MustParse("0")),
					Quota:        ptr.To(resource.MustParse("8Gi")),
					Objects:      1234,
					Resources:    5,
					Members:      []hostingv1alpha1.StoreMember{{ID: "1"}, {ID: "2"}},
					Version:      "3.7.3",
				},
			},
			want: []any{
				"fast", "True", int64(5), int64(1234), "1.2Mi", "0", "8Gi", "3.7.3", "36h",
				"Degraded,AlmostFull", int64(2), "https://a:2379,https://b:2379", "unschedulable,heavy:NoSchedule,disk=hdd:PreferNoSchedule",
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := tableConvertor.ConvertToTable(t.Context(), test.store, nil)
			expect.NoError(t, err, "ConvertToTable")
			expect.Equal(t, test.want, got.Rows[0].Cells, "cells")
		})
	}
}

func TestColumns(t *testing.T) {
	t.Parallel()
	got, err := tableConvertor.ConvertToTable(t.Context(), &hostingv1alpha1.StoreList{}, nil)
	expect.NoError(t, err, "ConvertToTable")
	var always, wide []string
	for _, column := range got.ColumnDefinitions {
		if column.Priority == 0 {
			always = append(always, column.Name)
		} else {
			wide = append(wide, column.Name)
		}
	}
	expect.Equal(t, []string{"Name", "Ready", "Resources", "Objects", "Size", "In Use", "Quota", "Version", "Age"}, always, "columns")
	expect.Equal(t, []string{"Reason", "Members", "Endpoints", "Taints"}, wide, "wide columns")
}
