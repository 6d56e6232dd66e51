// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
)

// watcher is a shifted clientv3.Watcher. The one below it is shared.
type watcher struct {
	clientv3.Watcher
	shift shift
}

// Close implements clientv3.Watcher. Watches end with their contexts.
func (w *watcher) Close() error { return nil }

// Watch implements clientv3.Watcher.
func (w *watcher) Watch(ctx context.Context, key string, options ...clientv3.OpOption) clientv3.WatchChan {
	ctx, cancel := context.WithCancel(ctx)
	return etcdkv.Watch(ctx, func(send func(clientv3.WatchResponse) bool) {
		defer cancel()
		op := clientv3.OpGet(key, options...)
		switch from := op.Rev(); {
		case from <= 0: // the present, or refused by etcd itself
		case w.shift.compacted(from):
			w.refuse(ctx, op, options, send)
			return
		default:
			options = slices.Concat(options, []clientv3.OpOption{clientv3.WithRev(from - int64(w.shift))})
		}
		for response := range w.Watcher.Watch(ctx, key, options...) {
			if !send(w.shifted(response)) {
				return
			}
		}
	})
}

// shifted returns a response with a copy of the header, because all watches of a stream share the
// header of a progress notification. The client resumes from the revision in the header.
func (w *watcher) shifted(r clientv3.WatchResponse) clientv3.WatchResponse {
	r.Header = proto.CloneOf(r.Header)
	w.shift.header(r.Header)
	w.shift.up(&r.CompactRevision)
	for _, event := range r.Events {
		w.shift.kv(event.Kv)
		w.shift.kv(event.PrevKv)
	}
	return r
}

// refuse answers a watch at a revision that is compacted in the view as etcd does: created, then
// cancelled. It creates a watch in etcd, whose header names the cluster, and fails if etcd does.
// If etcd itself was compacted later, that revision is the first that can be watched.
func (w *watcher) refuse(ctx context.Context, op clientv3.Op, options []clientv3.OpOption, send func(clientv3.WatchResponse) bool) {
	now := slices.Concat(options, []clientv3.OpOption{clientv3.WithRev(0), clientv3.WithCreatedNotify()})
	r, ok := <-w.Watcher.Watch(ctx, string(op.KeyBytes()), now...)
	if !ok {
		return
	}
	r = w.shifted(r)
	if r.Err() != nil || op.IsCreatedNotify() {
		if !send(r) || r.Err() != nil {
			return
		}
	}
	send(clientv3.WatchResponse{Header: r.Header, Canceled: true, CompactRevision: int64(w.shift) + 1})
}
