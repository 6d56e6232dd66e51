// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/annex-dev/annex/pkg/storage/layer/compression"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// BenchmarkList writes a list of 1000 objects of 2.5 kB, kept plain and compressed.
func BenchmarkList(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 1))
	list := widgets.NewList().(*List)
	for i := range 1000 {
		conditions := []any{}
		for j := range 12 {
			conditions = append(conditions, map[string]any{
				"type": fmt.Sprintf("Condition%d", j), "status": "True", "reason": "Succeeded", "lastTransitionTime": "2026-01-02T03:04:05Z",
				"message": fmt.Sprintf("The step %d has completed with the result %x", j, random.Uint64()),
			})
		}
		text, err := json.Marshal(map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget",
			"metadata": map[string]any{"name": fmt.Sprintf("widget-%d", i), "namespace": "default", "uid": fmt.Sprintf("%x", random.Uint64())},
			"spec":     map[string]any{"replicas": i, "image": fmt.Sprintf("registry.example.com/image:%x", random.Uint64())},
			"status":   map[string]any{"conditions": conditions},
		})
		expect.NoError(b, err)
		list.Items = append(list.Items, *newWidget(b, string(text), "7"))
	}
	for _, dictionary := range []*compression.Dictionary{nil, compression.Generic()} {
		b.Run(fmt.Sprintf("compressed=%v", dictionary != nil), func(b *testing.B) {
			var kept, size int64
			for i := range list.Items {
				expect.NoError(b, list.Items[i].compress(dictionary))
				kept += list.Items[i].size()
				size += int64(list.Items[i].length)
			}
			b.SetBytes(size)
			for b.Loop() {
				expect.NoError(b, list.WriteJSON(io.Discard))
			}
			b.ReportMetric(float64(kept)/float64(len(list.Items)), "kept-B/object")
			b.ReportMetric(float64(size)/float64(len(list.Items)), "JSON-B/object")
		})
	}
}

// BenchmarkStored decodes an object of 2.5 kB, as each one when a watch cache is filled.
func BenchmarkStored(b *testing.B) {
	stored := fmt.Appendf(nil, `{"apiVersion":"example.com/v1","color":"%0*d","kind":"Widget","metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","generation":1,"labels":{"a":"b"},"name":"a","uid":"u"}}`+"\n", 2300, 1)
	codec := newRecognising(false).Form(unstructured.UnstructuredJSONScheme).Codec
	b.ReportAllocs()
	for b.Loop() {
		decoded, err := runtime.Decode(codec, stored)
		expect.NoError(b, err)
		decoded.(*Object).SetResourceVersion("1234567")
	}
}

// BenchmarkContents selects a page of 500, and the objects with a label that one of 100 has in a
// namespace of 40.
func BenchmarkContents(b *testing.B) {
	for _, count := range []int{10_000, 1_000_000} {
		c := newContents(nil, func(int) {})
		read := c.restart()
		parts := make([]labels.Set, 100)
		for i := range parts {
			parts[i] = labels.Set{"part": fmt.Sprint(i)}
		}
		for i := range count {
			c.put(&record{key: fmt.Sprintf("/widgets/ns-%02d/widget-%07d", i%40, i), labels: parts[i%len(parts)]}, read)
		}
		c.filled(read, 1)
		c.addIndex("part")
		for name, test := range map[string]struct {
			prefix, label string
			limit         int
		}{
			"page": {prefix: "/widgets/", limit: 500}, "label": {prefix: "/widgets/ns-07/", label: "part=7"},
		} {
			label, err := labels.Parse(test.label)
			expect.NoError(b, err)
			predicate := storage.SelectionPredicate{Label: label, Field: fields.Everything()}
			b.Run(fmt.Sprintf("%s-of-%d", name, count), func(b *testing.B) {
				b.ReportAllocs()
				items := 0
				for b.Loop() {
					found, _ := c.selectAt(0, &predicate, test.prefix)
					page, _ := found.page(b.Context(), &predicate, test.prefix, test.prefix, test.limit)
					items = len(page.items)
				}
				b.ReportMetric(float64(items), "objects")
			})
		}
	}
}

// BenchmarkMatch compares recognising an object of 2.5 kB with decoding it by upstream's codec.
func BenchmarkMatch(b *testing.B) {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	list := apiextensionsv1.JSONSchemaProps{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &text}}
	spec := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"text": text, "names": list}}
	definition := newDefinition(apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec}})
	names := make([]any, 40)
	for i := range names {
		names[i] = strings.Repeat("service.", 5)
	}
	object := map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": random{rand.New(rand.NewPCG(1, 2))}.metadata(),
		"spec": map[string]any{"text": "x", "names": names},
	}
	stored, s, codec := encodeContent(b, object), newCanonicalSchema(definition, "v1"), upstreamCodec(b, definition)
	b.Run("match", func(b *testing.B) {
		b.SetBytes(int64(len(stored)))
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := s.match(stored); !ok {
				b.Fatalf("not recognised: %s", stored)
			}
		}
	})
	b.Run("upstream", func(b *testing.B) {
		b.SetBytes(int64(len(stored)))
		b.ReportAllocs()
		for b.Loop() {
			_, err := decodeWidget(codec, stored)
			expect.NoError(b, err)
		}
	})
}
