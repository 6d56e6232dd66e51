// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdkv

import (
	"context"
	"iter"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A page is in memory at once, and its size is unknown before, so pages start small and
// adapt to the size of the values. For each page etcd counts all keys that follow: a million
// objects in pages of 500 took minutes of its CPU time.
const (
	firstPage   = 8
	largestPage = 10_000
	pageBytes   = 4 << 20
)

// Getter is the part of a clientv3.KV that reads.
type Getter interface {
	// Get reads a range of keys.
	Get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error)
}

// Pages reads the keys from one on and before another, in pages at one revision: the revision of the options, or else
// of the first page.
func Pages(ctx context.Context, kv Getter, from, end string, options ...clientv3.OpOption) iter.Seq2[*clientv3.GetResponse, error] {
	return func(yield func(*clientv3.GetResponse, error) bool) {
		revision, limit := clientv3.OpGet(from, options...).Rev(), int64(firstPage)
		for key := from; ; {
			page, err := kv.Get(ctx, key, slices.Concat(options, []clientv3.OpOption{
				clientv3.WithRange(end), clientv3.WithRev(revision), clientv3.WithLimit(limit),
			})...)
			if !yield(page, err) || err != nil || !page.More || len(page.Kvs) == 0 {
				return
			}
			if revision == 0 {
				revision = page.Header.GetRevision()
			}
			key, limit = string(page.Kvs[len(page.Kvs)-1].Key)+"\x00", nextLimit(page)
		}
	}
}

// nextLimit aims at pageBytes, and at most doubles the page.
func nextLimit(page *clientv3.GetResponse) int64 {
	size := 0
	for _, kv := range page.Kvs {
		size += len(kv.Key) + len(kv.Value)
	}
	fit := pageBytes / max(1, size/len(page.Kvs))
	return int64(max(1, min(fit, 2*len(page.Kvs), largestPage)))
}
