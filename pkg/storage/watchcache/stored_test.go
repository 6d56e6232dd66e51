// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"bytes"
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestStored compares stored data with an object that never had a resource version, and encodes it.
func TestStored(t *testing.T) {
	t.Parallel()
	for name, metadata := range map[string]string{
		"in the middle": `{"name":"a","resourceVersion":"7","uid":"u"}`,
		"first":         `{"resourceVersion":"7","uid":"u"}`,
		"last":          `{"name":"a","resourceVersion":"7"}`,
		"only":          `{"resourceVersion":"7"}`,
		"in annotations, too": `{"annotations":{"a":"\"resourceVersion\":\"1\",","resourceVersion":"2"},"labels":{"resourceVersion":"3"},` +
			`"name":"a","resourceVersion":"7"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := `{"apiVersion":"example.com/v1","kind":"Widget","aa":{"resourceVersion":"4"},"metadata":` + metadata + `,"spec":{"resourceVersion":"5"}}`
			object := newWidget(t, text, "7")
			stored, err := object.Stored()
			expect.NoError(t, err)
			want := widgets.newDecoded()
			expect.NoError(t, json.Unmarshal([]byte(text), &want.Object))
			want.SetResourceVersion("")
			wantText, err := want.MarshalJSON()
			expect.NoError(t, err)
			expect.Equal(t, string(wantText), string(stored.Data))
			expect.Equal(t, "7", stored.GetResourceVersion())
			before, err := object.JSON()
			expect.NoError(t, err)
			if !bytes.Contains(before, []byte(`"resourceVersion":"7"`)) {
				t.Errorf("the object was changed: %s", before)
			}

			encoded, err := runtime.Encode(widgets.Form(nil).Codec, stored.DeepCopyObject())
			expect.NoError(t, err)
			expect.Equal(t, string(wantText), string(encoded), "encoded")
		})
	}
}

func TestStoredHasAVersion(t *testing.T) {
	t.Parallel()
	made, err := widgets.encode(&unstructured.Unstructured{Object: map[string]any{"kind": "Widget", "metadata": map[string]any{"name": "a"}}}, 0)
	expect.NoError(t, err)
	_, err = (&Object{made}).Stored()
	expect.Error(t, err, "update an object of Widget: it has no resource version")
}

// TestCopyOfStored checks that storage may set the resource version of a copy.
func TestCopyOfStored(t *testing.T) {
	t.Parallel()
	stored := &Stored{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Labels: map[string]string{"a": "b"}}, Data: []byte("{}\n")}
	copied := stored.DeepCopyObject().(*Stored)
	copied.SetResourceVersion("8")
	copied.Labels["a"] = "c"
	expect.Equal(t, metav1.ObjectMeta{ResourceVersion: "7", Labels: map[string]string{"a": "b"}}, stored.ObjectMeta)
	text, err := json.Marshal(copied)
	expect.NoError(t, err)
	expect.Equal(t, "{}", string(text), "JSON of a copy")
}

// TestDecodeMetadata compares metadata with encoding/json's.
func TestDecodeMetadata(t *testing.T) {
	t.Parallel()
	for name, metadata := range map[string]string{
		"stored":  `{"annotations":{"a":"\u003c"},"creationTimestamp":"2026-01-02T03:04:05Z","finalizers":["a/b"],"generation":2,"labels":{"a":"b"},"name":"a","uid":"u"}`,
		"unknown": `{"name":"a","unknown":1}`,
		"empty":   `{}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := []byte(`{"kind":"Widget","lists":{"metadata":{"name":"b"}},"metadata":` + metadata + `,"spec":{"metadata":{"name":"c"}}}` + "\n")
			got, err := DecodeMetadata(text)
			expect.NoError(t, err)
			want := &metav1.ObjectMeta{}
			expect.NoError(t, json.Unmarshal([]byte(metadata), want))
			if !equality.Semantic.DeepEqual(want, got) {
				t.Errorf("decoded %+v, want %+v", got, want)
			}
		})
	}
	for name, test := range map[string]struct{ text, err string }{
		"none":         {`{"spec":{"metadata":{}}}`, "the object has none"},
		"empty":        {"", "the object has none"},
		"no object":    {`{"metadata":"a"}`, "cannot unmarshal string"},
		"another type": {`{"metadata":{"name":1}}`, "cannot unmarshal number"},
	} {
		_, err := DecodeMetadata([]byte(test.text))
		if missing := expect.MissingFrom(err, test.err); missing != "" {
			t.Errorf("%s: %s", name, missing)
		}
	}
}
