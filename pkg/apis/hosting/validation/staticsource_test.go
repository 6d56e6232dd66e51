// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestValidateStaticSource(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		name string
		want []string
	}{
		"folder":  {"file", nil},
		"URL":     {"http", nil},
		"unknown": {"git", []string{`metadata.name: Unsupported value: "git"`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := &hostingv1alpha1.StaticSource{ObjectMeta: metav1.ObjectMeta{Name: test.name}}
			expect.FieldErrors(t, ValidateStaticSource(source), test.want...)
		})
	}
}

func TestValidateStaticSourceUpdates(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*hostingv1alpha1.StaticSource)
		want   []string
	}{
		"unchanged": {func(*hostingv1alpha1.StaticSource) {}, nil},
		"counts":    {func(s *hostingv1alpha1.StaticSource) { s.Status.Objects, s.Status.Applied = 3, 2 }, nil},
		"negative": {func(s *hostingv1alpha1.StaticSource) {
			s.Status.Objects, s.Status.Applied, s.Status.Orphaned = -1, -1, -1
		}, []string{
			"status.objects: Invalid value: -1", "status.applied: Invalid value: -1", "status.orphaned: Invalid value: -1"}},
		"condition": {func(s *hostingv1alpha1.StaticSource) {
			s.Status.Conditions = []metav1.Condition{{Type: "Read", Status: "Maybe", Reason: "Read", LastTransitionTime: metav1.Now()}}
		}, []string{"status.conditions[0].status: Unsupported value"}},
		"problems": {func(s *hostingv1alpha1.StaticSource) { s.Status.Problems = make([]hostingv1alpha1.StaticProblem, 21) }, []string{
			"status.problems: Too many: 21: must have at most 20 items"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := &hostingv1alpha1.StaticSource{ObjectMeta: metav1.ObjectMeta{Name: "file", ResourceVersion: "1"}}
			updated := old.DeepCopy()
			test.change(updated)
			expect.FieldErrors(t, ValidateStaticSourceStatusUpdate(updated, old), test.want...)
		})
	}
}
