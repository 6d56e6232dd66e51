// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package typed_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/test/expect"
)

type quotaStrategy = typed.SpecStatusStrategy[*corev1.ResourceQuota, corev1.ResourceQuotaSpec, corev1.ResourceQuotaStatus]

// newStrategy rejects every spec with a scope and every status with a used quantity.
func newStrategy(noGeneration bool) quotaStrategy {
	invalidSpec := func(quota *corev1.ResourceQuota) (errs field.ErrorList) {
		for range quota.Spec.Scopes {
			errs = append(errs, field.Forbidden(field.NewPath("spec", "scopes"), ""))
		}
		return errs
	}
	return quotaStrategy{
		ValidatedStrategy: typed.Validated(typed.Namespaced, invalidSpec, func(updated, _ *corev1.ResourceQuota) field.ErrorList { return invalidSpec(updated) }),
		ValidateStatusUpdateFunc: func(updated, _ *corev1.ResourceQuota) (errs field.ErrorList) {
			for range updated.Status.Used {
				errs = append(errs, field.Forbidden(field.NewPath("status", "used"), ""))
			}
			return errs
		},
		Version:      corev1.SchemeGroupVersion,
		Spec:         func(quota *corev1.ResourceQuota) *corev1.ResourceQuotaSpec { return &quota.Spec },
		Status:       func(quota *corev1.ResourceQuota) *corev1.ResourceQuotaStatus { return &quota.Status },
		NoGeneration: noGeneration,
	}
}

func storedQuota() *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "q", Generation: 3, Labels: map[string]string{"a": "b"}, Finalizers: []string{"example.com/a"}},
		Status:     corev1.ResourceQuotaStatus{Used: corev1.ResourceList{"secrets": {}}},
	}
}

func TestSpecStatusStrategyCreates(t *testing.T) {
	t.Parallel()
	for noGeneration, generation := range map[bool]int64{false: 1, true: 3} {
		got, want := storedQuota(), storedQuota()
		newStrategy(noGeneration).PrepareForCreate(t.Context(), got)
		want.Generation, want.Status = generation, corev1.ResourceQuotaStatus{}
		expect.Equal(t, want, got, "NoGeneration %t", noGeneration)
	}
}

func TestSpecStatusStrategyUpdates(t *testing.T) {
	t.Parallel()
	none := func(*corev1.ResourceQuota) {}
	spec := func(q *corev1.ResourceQuota) { q.Spec.Scopes = []corev1.ResourceQuotaScope{"Terminating"} }
	status := func(q *corev1.ResourceQuota) { q.Status.Hard = corev1.ResourceList{"secrets": {}} }
	equivalent := func(q *corev1.ResourceQuota) { q.Spec.Scopes = []corev1.ResourceQuotaScope{} }
	labels := func(q *corev1.ResourceQuota) { q.Labels = nil }
	finalizers := func(q *corev1.ResourceQuota) { q.Finalizers = nil }
	tests := map[string]struct {
		change func(*corev1.ResourceQuota)
		// main and status change the stored object to what an update through that endpoint
		// stores.
		main, status func(*corev1.ResourceQuota)
		generation   int64
	}{
		"nothing":          {none, none, none, 3},
		"spec":             {spec, spec, none, 4},
		"spec, equivalent": {equivalent, equivalent, none, 3},
		"status":           {status, none, status, 3},
		"labels":           {labels, labels, none, 3},
		"finalizers":       {finalizers, finalizers, none, 3},
		"spec and status":  {func(q *corev1.ResourceQuota) { spec(q); status(q) }, spec, status, 4},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for noGeneration, generation := range map[bool]int64{false: test.generation, true: 3} {
				strategy := newStrategy(noGeneration)
				got, want := storedQuota(), storedQuota()
				test.change(got)
				strategy.PrepareForUpdate(t.Context(), got, storedQuota())
				test.main(want)
				want.Generation = generation
				expect.Equal(t, want, got, "update")

				got, want = storedQuota(), storedQuota()
				test.change(got)
				strategy.ForStatus().PrepareForUpdate(t.Context(), got, storedQuota())
				test.status(want)
				expect.Equal(t, want, got, "status update")
			}
		})
	}
}

func TestSpecStatusStrategyValidates(t *testing.T) {
	t.Parallel()
	strategy := newStrategy(false)
	invalid := storedQuota()
	invalid.Spec.Scopes = []corev1.ResourceQuotaScope{"a", "b"}
	if errs := strategy.Validate(t.Context(), invalid); len(errs) != 2 {
		t.Errorf("create: %v, want two errors", errs)
	}
	if errs := strategy.ValidateUpdate(t.Context(), invalid, storedQuota()); len(errs) != 2 {
		t.Errorf("update: %v, want two errors", errs)
	}
	if errs := strategy.ForStatus().ValidateUpdate(t.Context(), invalid, storedQuota()); len(errs) != 1 {
		t.Errorf("status update: %v, want one error", errs)
	}
}

func TestSpecStatusStrategyResetFields(t *testing.T) {
	t.Parallel()
	want := fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
	if got := newStrategy(false).GetResetFields()["v1"]; !got.Equals(want) {
		t.Errorf("main endpoint resets %v, want %v", got, want)
	}
	want = fieldpath.NewSet(fieldpath.MakePathOrDie("metadata"), fieldpath.MakePathOrDie("spec"))
	if got := newStrategy(false).ForStatus().(rest.ResetFieldsStrategy).GetResetFields()["v1"]; !got.Equals(want) {
		t.Errorf("status endpoint resets %v, want %v", got, want)
	}
}
