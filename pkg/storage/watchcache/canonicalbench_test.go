// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"math/rand/v2"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

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
			if _, err := decodeWidget(codec, stored); err != nil {
				b.Fatal(err)
			}
		}
	})
}
