// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injectionprofile

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func stored() *v1alpha1.InjectionProfile {
	return &v1alpha1.InjectionProfile{
		ObjectMeta: metav1.ObjectMeta{Name: "agent", Generation: 3},
		Spec: v1alpha1.InjectionProfileSpec{
			Priority: 5, Mode: v1alpha1.InjectionOptOut,
			Targets: []v1alpha1.InjectionTarget{{Resource: "jobs.example.com"}, {Resource: "rays.example.com"}},
		},
		Status: v1alpha1.InjectionProfileStatus{ObservedGeneration: 3},
	}
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	got, want := stored(), stored()
	newStrategy(nil).PrepareForCreate(t.Context(), got)
	want.Generation, want.Status = 1, v1alpha1.InjectionProfileStatus{}
	expect.Equal(t, want, got, "new profile")

	got, want = stored(), stored()
	got.Spec.Priority, got.Status.ObservedGeneration = 6, 4
	change := got.DeepCopy()
	newStrategy(nil).PrepareForUpdate(t.Context(), got, stored())
	want.Spec.Priority, want.Generation = 6, 4
	expect.Equal(t, want, got, "update")

	newStrategy(nil).ForStatus().PrepareForUpdate(t.Context(), change, stored())
	want = stored()
	want.Status.ObservedGeneration = 4
	expect.Equal(t, want, change, "status update")
}

func TestTable(t *testing.T) {
	t.Parallel()
	profile := stored()
	for _, want := range [][]any{
		{"agent", "Unknown", int64(5), "OptOut", "jobs.example.com,rays.example.com", "<unknown>", ""},
		{"agent", "False", int64(5), "OptOut", "jobs.example.com,rays.example.com", "<unknown>", "no path"},
	} {
		got, err := tableConvertor.ConvertToTable(t.Context(), profile, nil)
		expect.NoError(t, err)
		expect.Equal(t, want, got.Rows[0].Cells, "cells")
		profile.Status.Conditions = []metav1.Condition{{Type: v1alpha1.InjectionProfileReady, Status: metav1.ConditionFalse, Message: "no path"}}
	}
}
