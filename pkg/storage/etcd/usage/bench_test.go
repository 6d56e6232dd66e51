// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// BenchmarkLoad measures reading all keys at start.
func BenchmarkLoad(b *testing.B) {
	for _, size := range []int{500, 5000} {
		b.Run(fmt.Sprintf("objects=20000/size=%d", size), func(b *testing.B) {
			etcd := startEtcd(b)
			const objects, perTxn = 20000, 100
			for first := 0; first < objects; first += perTxn {
				var ops []clientv3.Op
				for i := range perTxn {
					key := fmt.Sprintf("/annex/g%d.example.com/widgets/default/%06d", first%20, first+i)
					ops = append(ops, clientv3.OpPut(key, strings.Repeat("v", size)))
				}
				if _, err := etcd.client.Txn(b.Context()).Then(ops...).Commit(); err != nil {
					b.Fatal(err)
				}
			}
			tracker := NewTracker(etcd.client, "annex", nil)
			b.ReportAllocs()
			for b.Loop() {
				if err := tracker.load(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			if got := tracker.Total().Objects; got != objects {
				b.Fatalf("counted %d objects", got)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/objects, "µs/object")
		})
	}
}

// BenchmarkWrite measures writes with and without a tracker.
func BenchmarkWrite(b *testing.B) {
	for _, tracked := range []bool{false, true} {
		b.Run(fmt.Sprintf("tracked=%t", tracked), func(b *testing.B) {
			etcd := startEtcd(b)
			if tracked {
				<-etcd.track(b, "annex").Synced()
			}
			value := strings.Repeat("v", 2000)
			for i := 0; b.Loop(); i++ {
				key := fmt.Sprintf("/annex/example.com/widgets/default/%d", i%100)
				if _, err := etcd.client.Put(b.Context(), key, value); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkApply measures counting an event.
func BenchmarkApply(b *testing.B) {
	tracker := NewTracker(nil, "annex", nil)
	event := &clientv3.Event{
		Type:   clientv3.EventTypePut,
		Kv:     &mvccpb.KeyValue{Key: []byte("/annex/example.com/widgets/default/a"), Value: make([]byte, 100), CreateRevision: 2, ModRevision: 3},
		PrevKv: &mvccpb.KeyValue{Value: make([]byte, 90)},
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := tracker.apply([]*clientv3.Event{event}, 3); err != nil {
			b.Fatal(err)
		}
	}
}
