// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatainformers

import (
	"fmt"
	"runtime"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/cache"
)

// heapObjects is the number of objects that BenchmarkHeap keeps.
const heapObjects = 100_000

// BenchmarkHeap reports how much memory an object takes: here, and in the store of
// an informer of client-go that is given the same metadata.
func BenchmarkHeap(b *testing.B) {
	for name, owned := range map[string]bool{"free": false, "owned": true} {
		b.Run(name+"/annex", func(b *testing.B) {
			s := newStore(Resource{}, nil, func() {})
			measureHeap(b, s, func(i int) {
				stripped, _ := strip(typicalMetadata(i, owned))
				if err := s.Add(stripped); err != nil {
					b.Fatal(err)
				}
			})
		})
		b.Run(name+"/informer", func(b *testing.B) {
			s := cache.NewStore(cache.MetaNamespaceKeyFunc)
			measureHeap(b, s, func(i int) {
				if err := s.Add(typicalMetadata(i, owned)); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

func measureHeap(b *testing.B, keep any, add func(i int)) {
	b.Helper()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range heapObjects {
		add(i)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(keep)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/heapObjects, "B/object")
	b.ReportMetric(0, "ns/op")
}

// typicalMetadata returns the metadata of an object that kubectl apply has written, in one of
// a hundred namespaces. If it is owned, it shares its owner with nine others.
func typicalMetadata(i int, owned bool) *metav1.PartialObjectMetadata {
	// Strings that are decoded share no memory.
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: fmt.Sprintf("namespace-%d", i%100), Name: fmt.Sprintf("some-name-%d", i), UID: uuid.NewUUID(),
		ResourceVersion: fmt.Sprint(i), CreationTimestamp: metav1.Now(), Generation: 1,
		Labels:      map[string]string{"app.kubernetes.io/name": fmt.Sprintf("name-%d", i), "app.kubernetes.io/managed-by": "kubectl"},
		Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": fmt.Sprintf("%0500d", i)},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply, FieldsType: "FieldsV1",
			FieldsV1: &metav1.FieldsV1{Raw: fmt.Appendf(nil, "%0500d", i)},
		}},
	}}
	if owned {
		object.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "example.com/v1", Kind: "Widget", Name: fmt.Sprintf("owner-%d", i/10),
			UID: types.UID(fmt.Sprintf("%036d", i/10)), Controller: new(true), BlockOwnerDeletion: new(true),
		}}
	}
	return object
}
