// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package configmap

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestStrategyValidates(t *testing.T) {
	t.Parallel()
	s := newStrategy(runtime.NewScheme())
	immutable := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", ResourceVersion: "1"}, Immutable: ptr.To(true),
	}
	changed := immutable.DeepCopy()
	changed.Data = map[string]string{"k": "v"}
	if errs := s.Validate(t.Context(), changed); len(errs) != 0 {
		t.Errorf("Validate: %v", errs)
	}
	if errs := s.ValidateUpdate(t.Context(), changed, immutable); len(errs) != 1 {
		t.Errorf("changing an immutable config map: %v, want one error", errs)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: metav1.NewTime(time.Now().Add(-36 * time.Hour))},
		Data:       map[string]string{"k": ""}, BinaryData: map[string][]byte{"l": nil},
	}
	table, err := tableConvertor.ConvertToTable(t.Context(), configMap, nil)
	expect.NoError(t, err, "ConvertToTable")
	expect.Equal(t, []any{"a", int64(2), "36h"}, table.Rows[0].Cells, "cells")
}
