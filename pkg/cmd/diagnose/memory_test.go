// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestDecodedSize compares the estimate with the heap. It runs alone: other tests allocate too.
func TestDecodedSize(t *testing.T) { //nolint:paralleltest // see above
	fields := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"field-%d":"value-%d"`, i, i))
		}
		return strings.Join(all, ",")
	}
	for name, object := range map[string]string{
		"a long string":  `{"data":"` + strings.Repeat("x", 3000) + `"}`,
		"few fields":     `{` + fields(5) + `}`,
		"many fields":    `{` + fields(40) + `}`,
		"nested":         `{"a":{"b":{"c":{"d":{` + fields(7) + `}}}}}`,
		"small maps":     `{"nodes":[` + strings.Repeat(`{"id":"1","phase":"Running","ready":true},`, 30) + `{"id":"2"}]}`,
		"numbers":        `{"n":[` + strings.Repeat("1234567,", 100) + `1]}`,
		"managed fields": `{"metadata":{"managedFields":[{"fieldsV1":{"f:spec":{"f:a":{},"f:b":{".":{},"f:c":{}},"f:d":{},"f:e":{}}}}]}}`,
		"a typical resource": `{"apiVersion":"v1","kind":"Widget","metadata":{"name":"a","namespace":"b","uid":"0f6d0cf5-6cf4-44e4-bfcd-2a3f7a3c3f2b",` + fields(6) +
			`},"spec":{` + fields(12) + `},"status":{"conditions":[{` + fields(6) + `},{` + fields(6) + `}]}}`,
	} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // see above
			estimated, err := decodedSize([]byte(object))
			expect.NoError(t, err)
			const count = 2000
			kept := make([]map[string]any, count)
			before := heap()
			for i := range kept {
				expect.NoError(t, utiljson.Unmarshal([]byte(object), &kept[i]))
			}
			actual := float64(heap()-before) / count
			runtime.KeepAlive(kept)
			if ratio := float64(estimated) / actual; ratio < 0.8 || ratio > 1.2 {
				t.Errorf("estimated %d bytes, and %.0f are allocated", estimated, actual)
			}
		})
	}
	_, err := decodedSize([]byte("{"))
	expect.Error(t, err, "decode an object")
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
