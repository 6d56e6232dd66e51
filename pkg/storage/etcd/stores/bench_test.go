// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
)

// BenchmarkFence compares each kind of request with and without the fence.
func BenchmarkFence(b *testing.B) {
	pool := openPool(b, nil)
	etcd := etcdtest.StartTCP(b, nil)
	store := claim(b, pool, object("far", etcd.URL))
	kv := store.Client().KV
	value := strings.Repeat("x", 1000)
	for i := range 500 {
		if _, err := kv.Put(b.Context(), fmt.Sprintf("/annex/list/%03d", i), value); err != nil {
			b.Fatal(err)
		}
	}
	store.stop()
	store.running.Wait()
	fenced := store.breaker.Load()
	plain := newBreaker(nil, fenced.connection, fenced.cluster, nil)
	for name, request := range map[string]func() error{
		"get":  func() error { _, err := kv.Get(b.Context(), "/annex/list/007"); return err },
		"list": func() error { _, err := kv.Get(b.Context(), "/annex/list/", clientv3.WithPrefix()); return err },
		"update": func() error {
			_, err := kv.Txn(b.Context()).
				If(clientv3.Compare(clientv3.ModRevision("/annex/list/007"), ">", 0)).
				Then(clientv3.OpPut("/annex/list/007", value)).
				Else(clientv3.OpGet("/annex/list/007")).Commit()
			return err
		},
	} {
		for kind, gate := range map[string]*breaker{"plain": plain, "fenced": fenced} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				store.breaker.Store(gate)
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := request(); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}
