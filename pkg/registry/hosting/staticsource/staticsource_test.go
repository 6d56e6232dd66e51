// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticsource

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func stored() *v1alpha1.StaticSource {
	return &v1alpha1.StaticSource{
		ObjectMeta: metav1.ObjectMeta{Name: "file", Generation: 3},
		Spec:       v1alpha1.StaticSourceSpec{Location: "/etc/annex/static"},
		Status:     v1alpha1.StaticSourceStatus{Objects: 5, Applied: 4, Orphaned: 1},
	}
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	got, want := stored(), stored()
	newStrategy(nil).PrepareForCreate(t.Context(), got)
	want.Generation, want.Status = 1, v1alpha1.StaticSourceStatus{}
	expect.Equal(t, want, got, "new StaticSource")

	got, want = stored(), stored()
	got.Spec.Location, got.Status.Applied = "/srv/static", 5
	change := got.DeepCopy()
	newStrategy(nil).PrepareForUpdate(t.Context(), got, stored())
	want.Spec.Location, want.Generation = "/srv/static", 4
	expect.Equal(t, want, got, "update")

	got, want = change, stored()
	newStrategy(nil).ForStatus().PrepareForUpdate(t.Context(), got, stored())
	want.Status.Applied = 5
	expect.Equal(t, want, got, "status update")
}

func TestTable(t *testing.T) {
	t.Parallel()
	read := metav1.Condition{Type: v1alpha1.StaticSourceRead, Status: metav1.ConditionTrue, Message: "5 objects"}
	failed := metav1.Condition{Type: v1alpha1.StaticSourceRead, Status: metav1.ConditionFalse, Message: "no such folder"}
	waits := metav1.Condition{Type: v1alpha1.StaticSourceApplied, Status: metav1.ConditionFalse, Message: "Widget w waits"}
	for name, test := range map[string]struct {
		conditions []metav1.Condition
		// want are the cells without name and age.
		want []any
	}{
		"new":         {nil, []any{"/etc/annex/static", "Unknown", "4/5", int64(1), ""}},
		"not read":    {[]metav1.Condition{failed, waits}, []any{"/etc/annex/static", "False", "4/5", int64(1), "no such folder"}},
		"not applied": {[]metav1.Condition{read, waits}, []any{"/etc/annex/static", "True", "4/5", int64(1), "Widget w waits"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := stored()
			source.Status.Conditions = test.conditions
			got, err := tableConvertor.ConvertToTable(t.Context(), source, nil)
			expect.NoError(t, err, "ConvertToTable")
			cells := got.Rows[0].Cells
			expect.Equal(t, test.want, append(cells[1:5:5], cells[6:]...), "cells")
		})
	}
}
