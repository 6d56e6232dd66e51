// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package controllers

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// testLargeObjectThroughTheMainCluster: kube-apiserver's limit of 3 MiB does not apply to
// proxied requests, and annex's does. It runs alone, and annex's limit is low here: a patch of 8 MiB takes two seconds of CPU
// time, and upstream's handler gives up after 34 seconds.
func testLargeObjectThroughTheMainCluster(t *testing.T, s *sharedAnnex) {
	w := widgets{group: s.known, namespace: newNamespace(t)}
	mainWidgets := w.by(main(t))
	if _, err := mainWidgets.Create(t.Context(), w.object("large"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const size = 7 << 19 / 6 * 6
	// The schema allows any status.
	grow := func(bytes int) error {
		patch := `{"status":{"data":"` + strings.Repeat("annex ", bytes/6) + `"}}`
		_, err := mainWidgets.Patch(t.Context(), "large", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		return err
	}
	if err := grow(size); err != nil {
		t.Fatalf("write 3.5 MiB: %.300v", err)
	}
	patch := []byte(`{"metadata":{"labels":{"patched":"yes"}}}`)
	if _, err := mainWidgets.Patch(t.Context(), "large", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Errorf("patch it: %.300v", err)
	}
	list, err := mainWidgets.List(t.Context(), metav1.ListOptions{LabelSelector: "patched=yes"})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("list it: error %.300v, want one object", err)
	}
	if data, _, _ := unstructured.NestedString(list.Items[0].Object, "status", "data"); len(data) != size {
		t.Errorf("read %d bytes, want %d", len(data), size)
	}
	if err := grow(4 << 20); !apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(), "(--max-object-bytes)") {
		t.Errorf("write more than 4 MiB: got %.300v, want a 413 with the reason", err)
	}
}
