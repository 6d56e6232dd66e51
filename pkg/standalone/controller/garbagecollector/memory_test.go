// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"fmt"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/standalone/controller/metadatainformers"
)

// graphObjects is the number of owned objects that BenchmarkHeap adds. Ten of them share
// an owner.
const graphObjects = 100_000

// BenchmarkHeap reports how much memory the graph takes for an object with an owner, in
// addition to the object. An object that neither has nor is an owner takes none.
func BenchmarkHeap(b *testing.B) {
	f := newFixture()
	objects := make([]*metadatainformers.Object, graphObjects)
	for i := range objects {
		objects[i] = newThing(fmt.Sprintf("object-%d", i), blocking(fmt.Sprintf("owner-%d", i/10)))
		if i%10 == 0 {
			owner := newThing(fmt.Sprintf("owner-%d", i/10))
			f.known[types.NamespacedName{Namespace: "team", Name: owner.Name}] = owner
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, object := range objects {
		f.Added(things, object)
	}
	f.queued()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(f)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/graphObjects, "B/object")
	b.ReportMetric(0, "ns/op")
}
