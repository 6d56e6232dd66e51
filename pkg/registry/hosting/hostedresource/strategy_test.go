// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/annex-dev/annex/pkg/apis/hosting"
	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// stored is a HostedResource as an earlier request left it.
func stored() *hosting.HostedResource {
	return &hosting.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", Generation: 3, Finalizers: []string{"example.com/a"}},
		Spec:       hosting.HostedResourceSpec{SchedulerName: "annex-scheduler"},
		Status:     hosting.HostedResourceStatus{Phase: hosting.HostedResourceHosted, Objects: 7},
	}
}

func TestPrepareForCreate(t *testing.T) {
	t.Parallel()
	got, want := stored(), stored()
	newStrategy(nil).PrepareForCreate(t.Context(), got)
	want.Generation = 1
	want.Status = hosting.HostedResourceStatus{Phase: hosting.HostedResourcePending}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("new HostedResource (-want +got):\n%s", diff)
	}
}

func TestStoreThatIsGivenAtOnce(t *testing.T) {
	t.Parallel()
	made := stored()
	made.Spec.StoreName = "fast"
	newStrategy(nil).PrepareForCreate(t.Context(), made)
	scheduled := meta.FindStatusCondition(made.Status.Conditions, hosting.HostedResourceScheduled)
	if scheduled == nil || scheduled.Status != metav1.ConditionTrue || scheduled.Reason != "Preassigned" || scheduled.ObservedGeneration != 1 {
		t.Errorf("condition Scheduled is %+v, want True and Preassigned", scheduled)
	}
}

func TestPrepareForUpdate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*hosting.HostedResource)
		// main and status change what is stored into what the update through that
		// endpoint is to store.
		main, status func(*hosting.HostedResource)
	}{
		{
			name:   "nothing",
			change: func(*hosting.HostedResource) {},
			main:   func(*hosting.HostedResource) {},
			status: func(*hosting.HostedResource) {},
		},
		{
			name:   "spec",
			change: func(h *hosting.HostedResource) { h.Spec.StoreName = "default" },
			main:   func(h *hosting.HostedResource) { h.Spec.StoreName, h.Generation = "default", 4 },
			status: func(*hosting.HostedResource) {},
		},
		{
			name:   "spec, to what means the same",
			change: func(h *hosting.HostedResource) { h.Spec.Requests = hosting.ResourceList{} },
			main:   func(h *hosting.HostedResource) { h.Spec.Requests = hosting.ResourceList{} },
			status: func(*hosting.HostedResource) {},
		},
		{
			name:   "status",
			change: func(h *hosting.HostedResource) { h.Status.Phase = hosting.HostedResourceTerminating },
			main:   func(*hosting.HostedResource) {},
			status: func(h *hosting.HostedResource) { h.Status.Phase = hosting.HostedResourceTerminating },
		},
		{
			name:   "finalizers",
			change: func(h *hosting.HostedResource) { h.Finalizers = nil },
			main:   func(h *hosting.HostedResource) { h.Finalizers = nil },
			status: func(*hosting.HostedResource) {},
		},
		{
			name: "spec and status",
			change: func(h *hosting.HostedResource) {
				h.Spec.Priority = 9
				h.Status.Objects = 8
			},
			main:   func(h *hosting.HostedResource) { h.Spec.Priority, h.Generation = 9, 4 },
			status: func(h *hosting.HostedResource) { h.Status.Objects = 8 },
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
				t.Errorf("updated HostedResource (-want +got):\n%s", diff)
			}

			got, want = stored(), stored()
			test.change(got)
			newStrategy(nil).ForStatus().PrepareForUpdate(t.Context(), got, stored())
			test.status(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("HostedResource with updated status (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUpdatesAreValidated(t *testing.T) {
	t.Parallel()
	invalid := stored()
	invalid.ResourceVersion = "1"
	invalid.Spec.Compression = "Lzw"
	if errs := newStrategy(nil).ValidateUpdate(t.Context(), invalid, stored()); len(errs) != 1 {
		t.Errorf("update: %d errors for an invalid spec, want 1", len(errs))
	}
	if errs := newStrategy(nil).ForStatus().ValidateUpdate(t.Context(), invalid, stored()); len(errs) != 0 {
		t.Errorf("status update: spec is none of its business: %v", errs.ToAggregate())
	}
	invalid.Status.Phase = "Lost"
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
