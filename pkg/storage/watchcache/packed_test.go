// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"bytes"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeserializer "k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func newPods(t *testing.T, field string) *Packing {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	utilruntime.Must(example.AddToScheme(scheme))
	utilruntime.Must(examplev1.AddToScheme(scheme))
	codec := runtimeserializer.NewCodecFactory(scheme).LegacyCodec(examplev1.SchemeGroupVersion)
	typed, err := NewPacking(codec, func() runtime.Object { return &example.Pod{} }, func(obj runtime.Object) (labels.Set, fields.Set, error) {
		pod := obj.(*example.Pod)
		known := fields.Set{nameField: pod.Name, namespaceField: pod.Namespace}
		if field != "" {
			known[field] = pod.Spec.NodeName
		}
		return pod.Labels, known, nil
	})
	expect.NoError(t, err)
	return typed
}

func TestPacked(t *testing.T) {
	t.Parallel()
	for field, byMetadata := range map[string]bool{"spec.nodeName": false, "": true} {
		typed := newPods(t, field)
		expect.Equal(t, byMetadata, typed.byMetadata, "only metadata are needed with the field "+field)
		pod := &example.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "a", UID: "u", Generation: 3, Labels: map[string]string{"a": "b"},
				Annotations: map[string]string{"large": strings.Repeat("large ", 500), "metadata": `{"name":"b"}`},
			},
			Spec: example.PodSpec{NodeName: "node"},
		}
		var stored bytes.Buffer
		expect.NoError(t, typed.codec.Encode(pod, &stored))
		decoded, _, err := typed.Form().Codec.Decode(stored.Bytes(), nil, &Packed{})
		expect.NoError(t, err)
		packed := decoded.(*Packed)
		packed.SetResourceVersion("7")
		if packed.stored.dictionary == nil || len(packed.stored.data) > stored.Len()/4 {
			t.Errorf("%d of %d bytes are kept", len(packed.stored.data), stored.Len())
		}
		labelSet, fieldSet, err := PackedAttrs(packed)
		expect.NoError(t, err)
		wantLabels, wantFields, err := typed.attrs(pod)
		expect.NoError(t, err)
		expect.Equal(t, wantLabels, labelSet, "labels")
		expect.Equal(t, wantFields, fieldSet, "fields")

		unpacked := &example.Pod{}
		expect.NoError(t, packed.DeepCopyObject().(*Packed).unpack(unpacked))
		pod.ResourceVersion = "7"
		expect.Equal(t, pod, unpacked, "the object")
		var again bytes.Buffer
		expect.NoError(t, typed.Form().Codec.Encode(packed, &again))
		if !strings.Contains(again.String(), `"resourceVersion":"7"`) {
			t.Errorf("encoded as %s", again.String())
		}
		if _, _, err := typed.Form().Codec.Decode(stored.Bytes()[:stored.Len()-3], nil, &Packed{}); err == nil {
			t.Error("an incomplete object was decoded")
		}
	}
}

func TestPackedBookmark(t *testing.T) {
	t.Parallel()
	bookmark := &Packed{}
	bookmark.SetResourceVersion("7")
	bookmark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	unpacked := &example.Pod{}
	expect.NoError(t, bookmark.unpack(unpacked))
	expect.Equal(t, &example.Pod{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "7", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}, unpacked, "the bookmark")
}

func TestWithoutMember(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, from, want string }{
		{"first", `{"a":{"b":[{"x":1,"y":2}]},"c":3}`, `{"a":{"b":[{"y":2}]},"c":3}`},
		{"last", `{"a":{"b":[{"w":[],"x":{"x":"}"}}]}}`, `{"a":{"b":[{"w":[]}]}}`},
		{"only", `{"a":{"b":[{"x":null}]}}`, `{"a":{"b":[{}]}}`},
		{"several objects", `{"a":{"b":[{"w":0,"x":1,"y":2},{"y":3},{"x":"],"}]}}`, `{"a":{"b":[{"w":0,"y":2},{"y":3},{}]}}`},
		{"only in the array", `{"x":1,"a":{"x":2,"b":[{"y":{"x":3}}],"x":4},"x":5}`, `{"x":1,"a":{"x":2,"b":[{"y":{"x":3}}],"x":4},"x":5}`},
		{"empty array", `{"a":{"b":[]}}`, `{"a":{"b":[]}}`},
		{"no array", `{"a":{"b":{"x":1}}}`, ""},
		{"null", `{"a":{"b":null}}`, ""},
		{"no path", `{"a":{}}`, ""},
		{"no object", `[]`, ""},
	} {
		got, ok := WithoutMember([]byte(tc.from), []string{"a", "b"}, "x")
		expect.Equal(t, tc.want, string(got), tc.name)
		expect.Equal(t, tc.want != "", ok, tc.name+": there is an array")
	}
}
