// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// stored returns a stored HostedResource.
func stored() *v1alpha1.HostedResource {
	return &v1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", Generation: 3, Finalizers: []string{"example.com/a"}},
		Spec:       v1alpha1.HostedResourceSpec{SchedulerName: "annex-scheduler"},
		Status:     v1alpha1.HostedResourceStatus{Phase: v1alpha1.HostedResourceHosted, Objects: 7},
	}
}

func TestPrepareForCreate(t *testing.T) {
	t.Parallel()
	got, want := stored(), stored()
	newStrategy(nil).PrepareForCreate(t.Context(), got)
	want.Generation = 1
	want.Status = v1alpha1.HostedResourceStatus{Phase: v1alpha1.HostedResourcePending}
	expect.Equal(t, want, got, "new HostedResource")
}

func TestPreassignedStore(t *testing.T) {
	t.Parallel()
	made := stored()
	made.Spec.StoreName = "fast"
	newStrategy(nil).PrepareForCreate(t.Context(), made)
	scheduled := meta.FindStatusCondition(made.Status.Conditions, v1alpha1.HostedResourceScheduled)
	if scheduled == nil || scheduled.Status != metav1.ConditionTrue || scheduled.Reason != "Preassigned" || scheduled.ObservedGeneration != 1 {
		t.Errorf("condition Scheduled is %+v, want True and Preassigned", scheduled)
	}
}

func TestPrepareForUpdate(t *testing.T) {
	t.Parallel()
	change := stored()
	change.Spec.Priority, change.Status.Objects = 9, 8
	got, want := change.DeepCopy(), stored()
	newStrategy(nil).PrepareForUpdate(t.Context(), got, stored())
	want.Spec.Priority, want.Generation = 9, 4
	expect.Equal(t, want, got, "update")
	got, want = change.DeepCopy(), stored()
	newStrategy(nil).ForStatus().PrepareForUpdate(t.Context(), got, stored())
	want.Status.Objects = 8
	expect.Equal(t, want, got, "status update")
	if _, ok := newStrategy(nil).GetResetFields()[fieldpath.APIVersion(v1alpha1.SchemeGroupVersion.String())]; !ok {
		t.Error("no reset fields of v1alpha1")
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
		t.Errorf("status update: errors of the spec: %v", errs.ToAggregate())
	}
	invalid.Status.Phase = "Lost"
	if errs := newStrategy(nil).ForStatus().ValidateUpdate(t.Context(), invalid, stored()); len(errs) != 1 {
		t.Errorf("status update: %d errors for an invalid status, want 1", len(errs))
	}
}
