// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"context"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
)

// watcher is a shifted clientv3.Watcher. The one below it is shared.
type watcher struct {
	etcd  clientv3.Watcher
	shift shift

	closeOnce sync.Once
	closed    chan struct{}
	watches   sync.WaitGroup
}

func newWatcher(etcd clientv3.Watcher, shift shift) *watcher {
	return &watcher{etcd: etcd, shift: shift, closed: make(chan struct{})}
}

// RequestProgress implements clientv3.Watcher.
func (w *watcher) RequestProgress(ctx context.Context) error { return w.etcd.RequestProgress(ctx) }

// Close implements clientv3.Watcher. It ends only the watches of this view.
func (w *watcher) Close() error {
	w.closeOnce.Do(func() { close(w.closed) })
	w.watches.Wait()
	return nil
}

// Watch implements clientv3.Watcher.
func (w *watcher) Watch(ctx context.Context, key string, options ...clientv3.OpOption) clientv3.WatchChan {
	ctx, cancel := context.WithCancel(ctx)
	out := make(chan clientv3.WatchResponse)
	w.watches.Go(func() {
		defer close(out)
		defer cancel()
		send := func(r clientv3.WatchResponse) bool {
			select {
			case out <- r:
				return true
			case <-ctx.Done():
			case <-w.closed:
			}
			return false
		}
		op := clientv3.OpGet(key, options...)
		switch from := op.Rev(); {
		case from <= 0: // the present, or refused by etcd itself
		case w.shift.compacted(from):
			w.refuse(ctx, op, options, send)
			return
		default:
			options = slices.Concat(options, []clientv3.OpOption{clientv3.WithRev(from - int64(w.shift))})
		}
		w.forward(w.etcd.Watch(ctx, key, options...), send)
	})
	return out
}

// forward sends shifted responses until the watch ends.
func (w *watcher) forward(in clientv3.WatchChan, send func(clientv3.WatchResponse) bool) {
	for {
		select {
		case r, ok := <-in:
			if !ok || !send(w.shifted(r)) {
				return
			}
		case <-w.closed:
			return
		}
	}
}

// shifted returns a response with a copy of the header: all watches of a stream share that of a
// progress notification, and the client reads there where to resume.
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
	var r clientv3.WatchResponse
	var ok bool
	select {
	case r, ok = <-w.etcd.Watch(ctx, string(op.KeyBytes()), now...):
	case <-w.closed:
	}
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
