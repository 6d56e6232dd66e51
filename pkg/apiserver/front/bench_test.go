// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package front

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/storage/watchcache"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// BenchmarkEvent encodes events as upstream's handler of watches does.
func BenchmarkEvent(b *testing.B) {
	for _, size := range []int{2500, 14000, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			resource := &watchcache.Resource{
				Kind:  schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"},
				Attrs: func(runtime.Object) (labels.Set, fields.Set, error) { return nil, nil, nil },
			}
			stored := fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{},"spec":{"text":%q}}`, strings.Repeat("x", size))
			object := &watchcache.Object{}
			expect.NoError(b, runtime.DecodeInto(resource.Form(unstructured.UnstructuredJSONScheme).Codec, stored, object))
			object.SetResourceVersion("7")
			encode := encoder{}
			embedded, event := runtime.NewSpliceBuffer(), runtime.NewSpliceBuffer()
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				expect.NoError(b, encode.Encode(object, embedded))
				expect.NoError(b, encode.Encode(&metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: embedded.Bytes()}}, event))
				embedded.Reset()
				event.Reset()
			}
		})
	}
}
