// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"context"
	"testing"

	"k8s.io/apiserver/pkg/storage/value"

	"github.com/annex-dev/annex/pkg/storage/layer/writeinfo"
)

// trainedReplica returns a replica with a trained dictionary, and an object.
func trainedReplica(b *testing.B) (r *replica, object []byte) {
	b.Helper()
	etcd := startEtcd(b)
	r = newReplica(b, etcd, nil)
	r.fill(b, etcd, 100)
	r.trainNow(b)
	random := newRandom()
	object = widget(random)
	if dictionaryIn(b, r.write(b, nil, "w", object)) == genericID1 {
		b.Fatal("there is no dictionary")
	}
	return r, object
}

// BenchmarkTransformer measures compression and decompression by dictionary.
func BenchmarkTransformer(b *testing.B) {
	own, object := trainedReplica(b)
	for name, r := range map[string]*replica{"own": own, "generic": newReplica(b, nil, nil)} {
		stored := r.write(b, nil, "w", object)
		b.Run("dictionary="+name+"/write", func(b *testing.B) {
			b.SetBytes(int64(len(object)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.TransformToStorage(b.Context(), object, value.DefaultContext("w")); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(stored))/float64(len(object)), "stored/plain")
		})
		b.Run("dictionary="+name+"/read", func(b *testing.B) {
			b.SetBytes(int64(len(object)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := r.TransformFromStorage(b.Context(), stored, value.DefaultContext("w")); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkUncompressed reads plain values while compression is enabled, for a client and
// for an update.
func BenchmarkUncompressed(b *testing.B) {
	r := newReplica(b, nil, nil)
	object := widget(newRandom())
	for name, ctx := range map[string]context.Context{"client": b.Context(), "update": writeinfo.NewContext(b.Context(), &writeinfo.Info{Update: true})} {
		b.Run("for="+name, func(b *testing.B) {
			b.SetBytes(int64(len(object)))
			for b.Loop() {
				if _, _, err := r.TransformFromStorage(ctx, object, value.DefaultContext("w")); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
