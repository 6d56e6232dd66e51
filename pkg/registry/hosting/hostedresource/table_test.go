// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/apis/hosting"
)

func TestTable(t *testing.T) {
	t.Parallel()
	created := metav1.NewTime(time.Now().Add(-36 * time.Hour))
	tests := []struct {
		name   string
		hosted *hosting.HostedResource
		want   []any
	}{
		{
			name: "pending",
			hosted: &hosting.HostedResource{
				ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", CreationTimestamp: created},
				Status: hosting.HostedResourceStatus{
					Phase:      hosting.HostedResourcePending,
					Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "NotDefined"}},
				},
			},
			want: []any{"widgets.example.com", "<none>", "Pending", int64(0), "0", "36h", "0", "<unknown>", "<none>", "NotDefined"},
		},
		{
			name: "hosted",
			hosted: &hosting.HostedResource{
				ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", CreationTimestamp: created},
				Spec:       hosting.HostedResourceSpec{StoreName: "default"},
				Status: hosting.HostedResourceStatus{
					Phase:      hosting.HostedResourceHosted,
					Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Served"}},
					Objects:    1234, Bytes: 1258291, StoredBytes: 524288, CachedBytes: 10 << 20,
				},
			},
			want: []any{"widgets.example.com", "default", "Hosted", int64(1234), "1.2Mi", "36h", "512Ki", "10Mi", "<none>", ""},
		},
		{
			name: "not following",
			hosted: &hosting.HostedResource{
				ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", CreationTimestamp: created},
				Spec:       hosting.HostedResourceSpec{StoreName: "default"},
				Status: hosting.HostedResourceStatus{
					Phase: hosting.HostedResourceHosted,
					Conditions: []metav1.Condition{
						{Type: "DefinitionFollowed", Status: metav1.ConditionFalse, Reason: "Refused"},
						{Type: "Published", Status: metav1.ConditionTrue, Reason: "Published"},
						{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Served"},
					},
				},
			},
			want: []any{"widgets.example.com", "default", "Hosted", int64(0), "0", "36h", "0", "<unknown>", "True", "Refused"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := tableConvertor.ConvertToTable(t.Context(), test.hosted, nil)
			if err != nil {
				t.Fatalf("ConvertToTable: %v", err)
			}
			if diff := cmp.Diff(test.want, got.Rows[0].Cells); diff != "" {
				t.Errorf("cells (-want +got):\n%s", diff)
			}
		})
	}
}

func TestColumns(t *testing.T) {
	t.Parallel()
	got, err := tableConvertor.ConvertToTable(t.Context(), &hosting.HostedResourceList{}, nil)
	if err != nil {
		t.Fatalf("ConvertToTable: %v", err)
	}
	var always, wide []string
	for _, column := range got.ColumnDefinitions {
		if column.Priority == 0 {
			always = append(always, column.Name)
		} else {
			wide = append(wide, column.Name)
		}
	}
	if diff := cmp.Diff([]string{"Name", "Store", "Phase", "Objects", "Bytes", "Age"}, always); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Stored", "Cached", "Published", "Reason"}, wide); diff != "" {
		t.Errorf("wide columns (-want +got):\n%s", diff)
	}
}
