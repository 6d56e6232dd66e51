// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func stored() *v1alpha1.Migration {
	return &v1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets", Generation: 3, Finalizers: []string{v1alpha1.MigrationFinalizer}},
		Spec:       v1alpha1.MigrationSpec{Resource: "widgets.example.com", StoreName: "fast"},
		Status:     v1alpha1.MigrationStatus{Phase: v1alpha1.MigrationFollowing},
	}
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	got, want := stored(), stored()
	got.Finalizers, got.Status.Objects = nil, 7
	newStrategy(nil).PrepareForCreate(t.Context(), got)
	want.Generation, want.Status.Phase = 1, v1alpha1.MigrationPending
	expect.Equal(t, want, got, "new Migration")

	got, want = stored(), stored()
	got.Spec.Confirmed, got.Status.Phase = true, v1alpha1.MigrationFailed
	change := got.DeepCopy()
	newStrategy(nil).PrepareForUpdate(t.Context(), got, stored())
	want.Spec.Confirmed, want.Generation = true, 4
	expect.Equal(t, want, got, "update")

	got, want = change, stored()
	newStrategy(nil).ForStatus().PrepareForUpdate(t.Context(), got, stored())
	want.Status.Phase = v1alpha1.MigrationFailed
	expect.Equal(t, want, got, "status update")
}

func TestTable(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	for name, test := range map[string]struct {
		status v1alpha1.MigrationStatus
		// want are the cells without those of name, resource, Store and age.
		want []any
	}{
		"waiting": {v1alpha1.MigrationStatus{Phase: v1alpha1.MigrationPending, Conditions: []metav1.Condition{{Type: v1alpha1.MigrationComplete, Message: "It waits"}}},
			[]any{"<none>", "Pending", "<none>", int64(0), "<none>", "It waits"}},
		"begun": {v1alpha1.MigrationStatus{Phase: v1alpha1.MigrationCopying, FromStoreName: "default", StartTime: &now},
			[]any{"default", "Copying", "0%", int64(0), "<none>", ""}},
		"copying": {v1alpha1.MigrationStatus{Phase: v1alpha1.MigrationCopying, FromStoreName: "default", StartTime: &now, Objects: 200, CopiedObjects: 133},
			[]any{"default", "Copying", "66%", int64(200), "<none>", ""}},
		"following nothing": {v1alpha1.MigrationStatus{Phase: v1alpha1.MigrationFollowing, FromStoreName: "default", StartTime: &now, Lag: ptr.To[int64](3)},
			[]any{"default", "Following", "100%", int64(0), "3", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			migration := stored()
			migration.Status = test.status
			got, err := tableConvertor.ConvertToTable(t.Context(), migration, nil)
			expect.NoError(t, err, "ConvertToTable")
			cells := got.Rows[0].Cells
			expect.Equal(t, []any{"widgets", "widgets.example.com", "fast"}, []any{cells[0], cells[1], cells[3]}, "cells")
			expect.Equal(t, test.want, append([]any{cells[2], cells[4], cells[5]}, cells[7:]...), "cells")
		})
	}
}
