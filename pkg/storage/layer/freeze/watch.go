// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package freeze

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
)

// Watcher returns a Watcher behind the Gate, whose watches end without an error when the resource is
// closed. None of their events is later than the closing.
//
// A watch is passed on after the resource was found to be open, so the closing comes later than its
// beginning. A watch of all objects gets the tombstone, which is put when the resource is closed. A
// watch of some objects does not. Its first change after the closing is a deletion or a creation, so
// each one, and each notification of progress, needs a proof that the resource was still open at
// that revision.
func (g *Gate) Watcher(below clientv3.Watcher) clientv3.Watcher { return &watcher{below, g} }

type watcher struct {
	clientv3.Watcher
	gate *Gate
}

func (w *watcher) Watch(ctx context.Context, key string, options ...clientv3.OpOption) clientv3.WatchChan {
	if op := clientv3.OpGet(key, options...); op.Rev() > 0 && op.Rev() <= w.gate.state.ModRevision {
		return compacted(w.gate.state.ModRevision + 1)
	}
	ctx, cancel := context.WithCancel(ctx)
	events := w.Watcher.Watch(ctx, key, options...)
	isOfAll := key == keys.Objects(w.gate.Prefix, w.gate.Resource)
	return etcdkv.Watch(ctx, func(send func(clientv3.WatchResponse) bool) {
		defer cancel()
		err := w.gate.verify(ctx)
		for err == nil {
			response, ok := <-events
			if !ok {
				return
			}
			closed := false
			if isOfAll {
				closed = w.gate.cut(&response)
			} else if err = w.gate.prove(ctx, &response); err != nil {
				break
			}
			if isEmpty := closed && len(response.Events) == 0; !isEmpty && !send(response) || closed {
				return
			}
		}
		if !isRefused(err) && ctx.Err() == nil {
			send(etcdkv.FailedWatch(err))
		}
	})
}

// compacted returns a watch that ends because the history begins at a later revision.
func compacted(first int64) clientv3.WatchChan {
	refused := make(chan clientv3.WatchResponse, 1)
	refused <- clientv3.WatchResponse{Canceled: true, CompactRevision: first}
	close(refused)
	return refused
}

// cut removes the tombstone and all that follows it from a response, and reports whether it has one.
func (g *Gate) cut(response *clientv3.WatchResponse) (closed bool) {
	tombstone := keys.Tombstone(g.Prefix, g.Resource)
	at := slices.IndexFunc(response.Events, func(e *clientv3.Event) bool { return string(e.Kv.Key) == tombstone })
	if at < 0 {
		return false
	}
	response.Events = response.Events[:at]
	g.changedOnce.Do(func() { close(g.changed) })
	return true
}

// prove verifies the state after a response that may be of the time after the closing.
func (g *Gate) prove(ctx context.Context, response *clientv3.WatchResponse) error {
	var at int64
	if response.IsProgressNotify() {
		at = response.Header.GetRevision()
	}
	for _, event := range slices.Backward(response.Events) {
		if !event.IsModify() {
			at = event.Kv.ModRevision
			break
		}
	}
	if at <= g.verified.Load() {
		return nil
	}
	return g.verify(ctx)
}
