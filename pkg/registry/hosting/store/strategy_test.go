// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/annex-dev/annex/pkg/apis/hosting"
	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// stored is a Store as an earlier request left it.
func stored() *hosting.Store {
	return &hosting.Store{
		ObjectMeta: metav1.ObjectMeta{Name: "fast", Generation: 3, Labels: map[string]string{"disk": "ssd"}},
		Spec:       hosting.StoreSpec{Embedded: &hosting.EmbeddedStore{}},
		Status:     hosting.StoreStatus{Objects: 7, Version: "3.7.3"},
	}
}

func TestPrepareForCreate(t *testing.T) {
	t.Parallel()
	got, want := stored(), stored()
	newStrategy(nil).PrepareForCreate(t.Context(), got)
	want.Generation = 1
	want.Status = hosting.StoreStatus{}
	want.Finalizers = []string{v1alpha1.StoreFinalizer}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("new Store (-want +got):\n%s", diff)
	}
}

func TestPrepareForUpdate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*hosting.Store)
		// main and status change what is stored into what the update through that
		// endpoint is to store.
		main, status func(*hosting.Store)
	}{
		{
			name:   "nothing",
			change: func(*hosting.Store) {},
			main:   func(*hosting.Store) {},
			status: func(*hosting.Store) {},
		},
		{
			name:   "spec",
			change: func(s *hosting.Store) { s.Spec.Unschedulable = true },
			main:   func(s *hosting.Store) { s.Spec.Unschedulable, s.Generation = true, 4 },
			status: func(*hosting.Store) {},
		},
		{
			name:   "spec, to what means the same",
			change: func(s *hosting.Store) { s.Spec.Taints = []hosting.Taint{} },
			main:   func(s *hosting.Store) { s.Spec.Taints = []hosting.Taint{} },
			status: func(*hosting.Store) {},
		},
		{
			name:   "status",
			change: func(s *hosting.Store) { s.Status.Objects = 8 },
			main:   func(*hosting.Store) {},
			status: func(s *hosting.Store) { s.Status.Objects = 8 },
		},
		{
			name:   "labels",
			change: func(s *hosting.Store) { s.Labels = nil },
			main:   func(s *hosting.Store) { s.Labels = nil },
			status: func(*hosting.Store) {},
		},
		{
			name: "spec and status",
			change: func(s *hosting.Store) {
				s.Spec.Unschedulable = true
				s.Status.Objects = 8
			},
			main:   func(s *hosting.Store) { s.Spec.Unschedulable, s.Generation = true, 4 },
			status: func(s *hosting.Store) { s.Status.Objects = 8 },
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, want := stored(), stored()
			test.change(got)
			newStrategy(nil).PrepareForUpdate(t.Context(), got, stored())
			test.main(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("updated Store (-want +got):\n%s", diff)
			}

			got, want = stored(), stored()
			test.change(got)
			newStrategy(nil).ForStatus().PrepareForUpdate(t.Context(), got, stored())
			test.status(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Store with updated status (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUpdatesAreValidated(t *testing.T) {
	t.Parallel()
	invalid := stored()
	invalid.ResourceVersion = "1"
	invalid.Spec.Embedded = nil
	if errs := newStrategy(nil).ValidateUpdate(t.Context(), invalid, stored()); len(errs) == 0 {
		t.Error("update: no error for an invalid spec")
	}
	if errs := newStrategy(nil).ForStatus().ValidateUpdate(t.Context(), invalid, stored()); len(errs) != 0 {
		t.Errorf("status update: spec is none of its business: %v", errs.ToAggregate())
	}
	invalid.Status.Objects = -1
	if errs := newStrategy(nil).ForStatus().ValidateUpdate(t.Context(), invalid, stored()); len(errs) != 1 {
		t.Errorf("status update: %d errors for an invalid status, want 1", len(errs))
	}
}

func TestResetFields(t *testing.T) {
	t.Parallel()
	version := fieldpath.APIVersion(v1alpha1.SchemeGroupVersion.String())
	want := fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
	if got := newStrategy(nil).GetResetFields()[version]; !got.Equals(want) {
		t.Errorf("main endpoint resets %v, want %v", got, want)
	}
	want = fieldpath.NewSet(fieldpath.MakePathOrDie("metadata"), fieldpath.MakePathOrDie("spec"))
	if got := newStrategy(nil).ForStatus().GetResetFields()[version]; !got.Equals(want) {
		t.Errorf("status endpoint resets %v, want %v", got, want)
	}
}
