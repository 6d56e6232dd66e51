// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"fmt"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
)

// streamKey is the header by which etcd's client tells streams apart.
const streamKey = "annex-stream"

// streams numbers them: each version of a resource has a stream.
var streams atomic.Int64

// stream is a Watcher with a stream of its own to etcd. All watches of a client with the same
// headers share a stream: one waits while etcd sends the events of another, and all receive
// the progress notifications that one requests.
type stream struct {
	clientv3.Watcher
	kv   clientv3.KV
	name string
	// latest is raised by each response.
	latest *latest
}

func newStream(watcher clientv3.Watcher, kv clientv3.KV, resource string, latest *latest) clientv3.Watcher {
	return stream{Watcher: watcher, kv: kv, name: fmt.Sprintf("%s/%d", resource, streams.Add(1)), latest: latest}
}

// Watch implements clientv3.Watcher. It accepts fragments: etcd sends up to a thousand events
// at once to a watch that lags, and large ones would not fit into one message.
func (s stream) Watch(ctx context.Context, key string, options ...clientv3.OpOption) clientv3.WatchChan {
	answers := s.Watcher.Watch(s.context(ctx), key, append(options, clientv3.WithFragment())...)
	return etcdkv.Watch(ctx, func(send func(clientv3.WatchResponse) bool) {
		for answer := range answers {
			if answer.Canceled && ctx.Err() != nil {
				return // etcd may give the end of the context as the reason, which is no error
			}
			etcdkv.Raise(&s.latest.revision, answer.Header.GetRevision())
			s.complete(ctx, answer.Events)
			if !send(answer) {
				return
			}
		}
	})
}

// complete adds the previous value to events that lack it, at which the watch would fail: etcd
// starts to send the events of a watch before it has recorded that they need it (recvLoop in
// its v3rpc). A compacted value stays missing.
func (s stream) complete(ctx context.Context, events []*clientv3.Event) {
	for _, event := range events {
		if event.IsCreate() || event.PrevKv != nil {
			continue
		}
		before, err := s.kv.Get(ctx, string(event.Kv.Key), clientv3.WithRev(event.Kv.ModRevision-1))
		if err == nil && len(before.Kvs) == 1 {
			event.PrevKv = before.Kvs[0]
		}
	}
}

// RequestProgress implements clientv3.Watcher.
func (s stream) RequestProgress(ctx context.Context) error {
	return s.Watcher.RequestProgress(s.context(ctx))
}

// Close does not close the Watcher, which is shared.
func (stream) Close() error { return nil }

func (s stream) context(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, streamKey, s.name)
}
