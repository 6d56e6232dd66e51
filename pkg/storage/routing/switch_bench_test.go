// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/annex-dev/annex/pkg/storage/move"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// BenchmarkSwitch moves a resource there and back under the writes of 8 clients of two replicas. The
// metrics are of the longest request of each move.
func BenchmarkSwitch(b *testing.B) {
	stores := []*fakeStore{startStore(b, "one"), startStore(b, "two")}
	var replicas []*replica
	for range 2 {
		r := &replica{fixture: newFixture(b, stores...)}
		r.place(b, withUID("hosted", placedOn("one", "first")))
		r.Interface = r.widgetStorage(b)
		replicas = append(replicas, r)
	}
	ctx, stop := context.WithCancel(b.Context())
	var clients sync.WaitGroup
	var longest, writes atomic.Int64
	for i := range 8 {
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				began := time.Now()
				if err := create(b.Context(), replicas[i%2], widgetKeyOf(fmt.Sprintf("object-%d-%d", i, n))); err != nil {
					b.Error(err)
					return
				}
				raise(&longest, int64(time.Since(began)))
				writes.Add(1)
			}
		})
	}
	var held []time.Duration
	for n := 0; b.Loop(); n++ {
		end := func(s *fakeStore) move.End {
			return move.End{KV: s.client.KV, Watcher: s.client.Watcher, Prefix: s.Prefix(), Transformer: identity.NewEncryptCheckTransformer()}
		}
		from, to := stores[n%2], stores[(n+1)%2]
		m := move.New(move.Config{Resource: widgets, UID: types.UID(fmt.Sprint(n)), HostedResource: "hosted", From: end(from), To: end(to)})
		longest.Store(0)
		expect.NoError(b, m.Copy(ctx))
		expect.NoError(b, m.Switch(ctx))
		for _, r := range replicas {
			r.place(b, withUID("hosted", placedOn(to.name, "first")))
		}
		expect.NoError(b, m.Clean(ctx))
		held = append(held, time.Duration(longest.Load()))
	}
	stop()
	clients.Wait()
	slices.Sort(held)
	b.ReportMetric(float64(held[len(held)/2].Milliseconds()), "held-p50-ms")
	b.ReportMetric(float64(held[len(held)*99/100].Milliseconds()), "held-p99-ms")
	b.ReportMetric(float64(writes.Load())/b.Elapsed().Seconds(), "writes/s")
}
