// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkCreate compares creates below a distant limit with creates of a
// resource that has none: one after the other, and by several clients of one replica
// and of two.
func BenchmarkCreate(b *testing.B) {
	unlimited, limited := limitsOf(nil, nil), limitsOf(list("1G", "1Ti"), list("1G", "1Ti"))
	for _, clients := range []struct{ replicas, workers int }{{1, 1}, {1, 16}, {2, 8}} {
		for _, of := range []struct {
			name   string
			limits Limits
		}{{"unlimited", unlimited}, {"limited", limited}} {
			b.Run(fmt.Sprintf("replicas=%d/clients=%d/%s", clients.replicas, clients.replicas*clients.workers, of.name), func(b *testing.B) {
				benchmarkCreate(b, startStore(b, of.limits), clients.replicas, clients.workers)
			})
		}
	}
}

func benchmarkCreate(b *testing.B, s *store, replicas, workers int) {
	var next atomic.Int64
	var running sync.WaitGroup
	var ready []*replica
	for range replicas {
		r := s.replica(b)
		<-r.usage.Synced()
		ready = append(ready, r)
	}
	b.ResetTimer()
	for _, replica := range ready {
		for range workers {
			running.Go(func() {
				for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
					if _, err := replica.put(b.Context(), fmt.Sprintf("ns/%d", i), 2500, 0); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
	}
	running.Wait()
}
