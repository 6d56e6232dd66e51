// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// incompressible returns random base64 characters, which compress by a quarter.
func incompressible(characters int) string {
	random := rand.NewChaCha8([32]byte{})
	data := make([]byte, characters/4*3)
	random.Read(data)
	return base64.StdEncoding.EncodeToString(data)
}

// TestLargeObject creates, reads, watches, patches and lists an object of 8 MiB, until it is
// too large.
func TestLargeObject(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	widgets.create(t, "v1", "small", "spec: {}")
	events := widgets.watch(t, "v1", metav1.ListOptions{ResourceVersion: widgets.get(t, "v1", "small").GetResourceVersion()})

	data := incompressible(8 << 20)
	object := widgets.object(t, "v1", "large", "spec: {}")
	object.Object["spec"] = map[string]any{"data": data}
	created, err := widgets.in("v1").Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create an object of 8 MiB: %.300v", err)
	}
	isWhole := func(what string, got *unstructured.Unstructured) {
		t.Helper()
		if got.GetName() != "large" || field(got, "spec", "data") != data {
			t.Errorf("%s: got %q with %d bytes of data, want large with %d", what, got.GetName(), len(fmt.Sprint(field(got, "spec", "data"))), len(data))
		}
	}
	isWhole("created", created)
	isWhole("read", widgets.get(t, "v1", "large"))
	event := nextEvent(t, events)
	if event.Type != watch.Added {
		t.Fatalf("watched %s %.200v", event.Type, event.Object)
	}
	isWhole("watched", event.Object.(*unstructured.Unstructured))

	patched, err := widgets.patch(t, "v1", "large", `{"metadata":{"labels":{"patched":"yes"}}}`)
	if err != nil {
		t.Fatalf("patch a label: %.300v", err)
	}
	isWhole("patched", patched)
	list, err := widgets.in("v1").List(t.Context(), metav1.ListOptions{LabelSelector: "patched=yes"})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("list: got %d objects, error %.300v, want one", len(list.Items), err)
	}
	isWhole("listed", &list.Items[0])

	// A small request can make a large object.
	copies := `[{"op":"copy","from":"/spec/data","path":"/spec/again"}]`
	_, err = widgets.in("v1").Patch(t.Context(), "large", types.JSONPatchType, []byte(copies), metav1.PatchOptions{})
	if !apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(), "bytes as it is stored: an object may have 16777216 bytes (--max-object-bytes)") {
		t.Errorf("grow it by a patch that copies: got %.300v, want a 413 with both sizes", err)
	}
	if err := widgets.in("v1").Delete(t.Context(), "large", metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete: %v", err)
	}
}

func TestTooLargeBody(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	answer := a.request(t, http.MethodPost, widgets.path("v1"), strings.Repeat(" ", 18<<20))
	if answer.Code != http.StatusRequestEntityTooLarge || !strings.Contains(string(answer.Body), "the request has 18874368 bytes, the limit is 17825792") {
		t.Errorf("got %.300s, want a 413 with the size and the limit", answer)
	}
}
