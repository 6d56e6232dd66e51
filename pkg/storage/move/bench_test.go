// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/layer/compression"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// BenchmarkCopy copies compressed objects of 2.5 kB. The metric heap-B/object is the growth of the
// heap, including the heaps of both etcds, from a tenth of the copy to its end: less than an object
// if the Mover holds none.
func BenchmarkCopy(b *testing.B) {
	const objects = 20_000
	for b.Loop() {
		b.StopTimer()
		config := Config{Resource: widgets, UID: "move", HostedResource: "hosted", From: compressed(b, "/one"), To: compressed(b, "/two")}
		fillCompressed(b, config.From, objects)
		var first, last uint64
		config.Report = func(p Progress) {
			if p.Copied < objects/10 || first > 0 && p.Copied < objects || last > 0 {
				return
			}
			b.StopTimer()
			last = heap()
			if first == 0 {
				first, last = last, 0
			}
			b.StartTimer()
		}
		b.StartTimer()
		began := time.Now()
		expect.NoError(b, New(config).Copy(b.Context()))
		b.ReportMetric(objects/time.Since(began).Seconds(), "objects/s")
		b.ReportMetric(float64(int64(last)-int64(first))/objects/0.9, "heap-B/object")
	}
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func compressed(b *testing.B, prefix string) End {
	b.Helper()
	client := etcdtest.StartClient(b)
	transformer, release := compression.NewManager().Transformer(compression.Resource{
		GroupResource: widgets, Store: prefix, Prefix: prefix, KV: client.KV, Enabled: func() bool { return true },
	})
	b.Cleanup(release)
	return End{KV: client.KV, Watcher: client.Watcher, Prefix: prefix, Transformer: transformer}
}

func fillCompressed(b *testing.B, e End, objects int) {
	b.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	var ops []clientv3.Op
	for i := range objects {
		key := keys.Objects(e.Prefix, widgets) + fmt.Sprintf("ns/%06d", i)
		var text strings.Builder
		fmt.Fprintf(&text, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"%06d","namespace":"ns"},"spec":{"values":[`, i)
		for text.Len() < 2490 {
			fmt.Fprintf(&text, `{"name":"value","number":%d},`, random.IntN(1_000_000))
		}
		text.WriteString(`{}]}}`)
		stored, err := e.Transformer.TransformToStorage(b.Context(), []byte(text.String()), value.DefaultContext(key))
		expect.NoError(b, err)
		if ops = append(ops, clientv3.OpPut(key, string(stored))); len(ops) == 100 || i == objects-1 {
			_, err := e.KV.Txn(b.Context()).Then(ops...).Commit()
			expect.NoError(b, err)
			ops = nil
		}
	}
}
