// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package encoded

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/annex-dev/annex/pkg/storage/compression"
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
				expect.NoError(b, list.writeJSON(io.Discard))
			}
			b.ReportMetric(float64(kept)/float64(len(list.Items)), "kept-B/object")
			b.ReportMetric(float64(size)/float64(len(list.Items)), "JSON-B/object")
		})
	}
}
