// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func stored() *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "q", Namespace: "ns", ResourceVersion: "1", Labels: map[string]string{"a": "b"}},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"secrets": resource.MustParse("5"), "limits.cpu": resource.MustParse("2")}},
		Status: corev1.ResourceQuotaStatus{
			Hard: corev1.ResourceList{"secrets": resource.MustParse("5"), "configmaps": resource.MustParse("1"), "limits.cpu": resource.MustParse("2")},
			Used: corev1.ResourceList{"secrets": resource.MustParse("3")},
		},
	}
}

func TestEndpointsWriteTheirPart(t *testing.T) {
	t.Parallel()
	s := newStrategy(runtime.NewScheme())
	created := stored()
	s.PrepareForCreate(t.Context(), created)
	if len(created.Status.Hard) != 0 || len(created.Status.Used) != 0 {
		t.Errorf("created with the status %+v", created.Status)
	}
	change := func() *corev1.ResourceQuota {
		quota := stored()
		quota.Labels = nil
		quota.Spec.Hard["secrets"] = resource.MustParse("6")
		quota.Status.Used["secrets"] = resource.MustParse("0")
		return quota
	}
	got, want := change(), change()
	s.PrepareForUpdate(t.Context(), got, stored())
	want.Status = stored().Status
	expect.Equal(t, want, got, "updated")
	got, want = change(), stored()
	s.ForStatus().PrepareForUpdate(t.Context(), got, stored())
	want.Status = change().Status
	expect.Equal(t, want, got, "updated status")
	reset := fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
	if got := s.GetResetFields()["v1"]; !got.Equals(reset) {
		t.Errorf("the main endpoint resets %v, want %v", got, reset)
	}
}

func TestValidates(t *testing.T) {
	t.Parallel()
	s := newStrategy(runtime.NewScheme())
	broken := stored()
	broken.Spec.Hard["secrets"] = resource.MustParse("-1")
	broken.Status.Used["secrets"] = resource.MustParse("-1")
	if errs := s.Validate(t.Context(), broken); len(errs) != 1 {
		t.Errorf("Validate: %v, want one error", errs)
	}
	if errs := s.ValidateUpdate(t.Context(), broken, stored()); len(errs) != 1 {
		t.Errorf("ValidateUpdate: %v, want one error", errs)
	}
	if errs := s.ForStatus().ValidateUpdate(t.Context(), broken, stored()); len(errs) != 1 {
		t.Errorf("ValidateUpdate of the status: %v, want one error", errs)
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	quota := stored()
	quota.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}
	want := []string{
		"spec.hard[limits.cpu]: annex serves nothing that this counts",
		"spec.scopes, spec.scopeSelector: a quota with scopes counts only pods and volume claims, which annex does not serve",
	}
	expect.Equal(t, want, strategy{}.WarningsOnCreate(t.Context(), quota), "warnings")
}

func TestTable(t *testing.T) {
	t.Parallel()
	got, err := tableConvertor.ConvertToTable(t.Context(), stored(), nil)
	expect.NoError(t, err)
	expect.Equal(t, []any{"q", "configmaps: 0/1, secrets: 3/5", "limits.cpu: 0/2", "<unknown>"}, got.Rows[0].Cells, "cells")
}
