// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestTable(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	tests := []struct {
		name  string
		event corev1.Event
		want  []any
	}{
		{
			name: "old",
			event: corev1.Event{
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p", FieldPath: "spec.x"},
				FirstTimestamp: metav1.NewTime(ago(3 * time.Hour)), LastTimestamp: metav1.NewTime(ago(time.Hour)), Count: 5,
				Source: corev1.EventSource{Component: "kubelet", Host: "node"}, Type: "Warning", Reason: "Failed", Message: " m\n",
			},
			want: []any{"60m", "Warning", "Failed", "pod/p", "spec.x", "kubelet, node", "m", "3h", int64(5), "e"},
		},
		{
			name: "new",
			event: corev1.Event{
				InvolvedObject: corev1.ObjectReference{Kind: "Pod"}, EventTime: metav1.NewMicroTime(ago(3 * time.Hour)),
				ReportingController: "a.com/c", ReportingInstance: "c-0", Type: "Normal", Reason: "Made", Message: "m",
			},
			want: []any{"3h", "Normal", "Made", "pod", "", "a.com/c, c-0", "m", "3h", int64(1), "e"},
		},
		{
			name: "series",
			event: corev1.Event{
				EventTime: metav1.NewMicroTime(ago(3 * time.Hour)), ReportingController: "a.com/c",
				Series: &corev1.EventSeries{Count: 9, LastObservedTime: metav1.NewMicroTime(ago(2 * time.Minute))},
			},
			want: []any{"2m", "", "", "", "", "a.com/c", "", "3h", int64(9), "e"},
		},
		{
			name: "without any time",
			want: []any{"<unknown>", "", "", "", "", "", "", "<unknown>", int64(1), "e"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.event.Name = "e"
			table, err := tableConvertor.ConvertToTable(t.Context(), &test.event, nil)
			expect.NoError(t, err, "ConvertToTable")
			expect.Equal(t, test.want, table.Rows[0].Cells, "cells")
			var narrow []string
			for _, column := range table.ColumnDefinitions {
				if column.Priority == 0 {
					narrow = append(narrow, column.Name)
				}
			}
			expect.Equal(t, []string{"Last Seen", "Type", "Reason", "Object", "Message"}, narrow, "columns without -o wide")
		})
	}
}

func TestAttrsOfForeignObject(t *testing.T) {
	t.Parallel()
	if _, _, err := attrs(&corev1.Pod{}); err == nil {
		t.Error("no error for a pod")
	}
}
