// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package typed_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// The tests of the groups check with typedtest.CheckStatus what main and status endpoint write.
func TestGeneration(t *testing.T) {
	t.Parallel()
	stored := func() *corev1.ResourceQuota {
		return &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: "q", Generation: 3, Labels: map[string]string{"a": "b"}, Finalizers: []string{"example.com/a"}},
			Status:     corev1.ResourceQuotaStatus{Used: corev1.ResourceList{"secrets": {}}},
		}
	}
	for name, test := range map[string]struct {
		change     func(*corev1.ResourceQuota)
		generation int64
	}{
		"nothing":         {func(*corev1.ResourceQuota) {}, 3},
		"spec":            {func(q *corev1.ResourceQuota) { q.Spec.Scopes = []corev1.ResourceQuotaScope{"Terminating"} }, 4},
		"equivalent spec": {func(q *corev1.ResourceQuota) { q.Spec.Scopes = []corev1.ResourceQuotaScope{} }, 3},
		"labels":          {func(q *corev1.ResourceQuota) { q.Labels = nil }, 3},
		"finalizers":      {func(q *corev1.ResourceQuota) { q.Finalizers = nil }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for noGeneration, generation := range map[bool]int64{false: test.generation, true: 3} {
				got, want := stored(), stored()
				test.change(got)
				test.change(want)
				want.Generation = generation
				got.Status = corev1.ResourceQuotaStatus{}
				typed.SpecStatusStrategy[*corev1.ResourceQuota]{NoGeneration: noGeneration}.PrepareForUpdate(t.Context(), got, stored())
				expect.Equal(t, want, got, "updated, NoGeneration %t", noGeneration)
			}
		})
	}
}
