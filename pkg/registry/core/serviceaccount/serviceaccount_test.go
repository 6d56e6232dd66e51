// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestStrategyKeepsSecretNamesOnly(t *testing.T) {
	t.Parallel()
	s := newStrategy(runtime.NewScheme())
	serviceAccount := &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", ResourceVersion: "1"},
		Secrets:    []corev1.ObjectReference{{Kind: "Secret", Namespace: "other", Name: "s", UID: "u"}, {Name: "t"}},
	}
	want := []corev1.ObjectReference{{Name: "s"}, {Name: "t"}}
	created, updated := serviceAccount.DeepCopy(), serviceAccount.DeepCopy()
	s.PrepareForCreate(t.Context(), created)
	s.PrepareForUpdate(t.Context(), updated, created)
	expect.Equal(t, want, created.Secrets, "created")
	expect.Equal(t, want, updated.Secrets, "updated")
	if errs := s.Validate(t.Context(), created); len(errs) != 0 {
		t.Errorf("Validate: %v", errs)
	}
	updated.Name = "A"
	if errs := s.ValidateUpdate(t.Context(), updated, created); len(errs) == 0 {
		t.Error("no error for another name")
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	table, err := tableConvertor.ConvertToTable(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, nil)
	expect.NoError(t, err, "ConvertToTable")
	expect.Equal(t, []any{"a", "<unknown>"}, table.Rows[0].Cells, "cells")
}
