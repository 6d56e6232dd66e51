// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"fmt"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// streamKey is the header that tells the streams of a client apart.
const streamKey = "annex-stream"

// streams counts them: two versions of a resource have a stream each.
var streams atomic.Int64

// stream is a Watcher with a stream of its own to etcd. All watches of a client
// with the same headers share a stream, where one waits while etcd sends the events
// of another, and all are told of the progress that one asks for.
type stream struct {
	clientv3.Watcher
	kv   clientv3.KV
	name string
}

func newStream(watcher clientv3.Watcher, kv clientv3.KV, resource string) clientv3.Watcher {
	return stream{Watcher: watcher, kv: kv, name: fmt.Sprintf("%s/%d", resource, streams.Add(1))}
}

// Watch implements clientv3.Watcher. It takes events in parts: etcd sends a watch that
// lags up to a thousand at once, which are more than fit into a message if they are
// large, and the watch would fail again and again.
func (s stream) Watch(ctx context.Context, key string, options ...clientv3.OpOption) clientv3.WatchChan {
	answers := s.Watcher.Watch(s.context(ctx), key, append(options, clientv3.WithFragment())...)
	completed := make(chan clientv3.WatchResponse)
	go func() {
		defer close(completed)
		for answer := range answers {
			s.complete(ctx, answer.Events)
			select {
			case completed <- answer:
			case <-ctx.Done():
				return
			}
		}
	}()
	return completed
}

// complete adds to events what was there before, where it is missing. etcd begins to send
// the events of a watch before it has noted that they are to come with it (recvLoop in
// its v3rpc), and the watch would fail at them. What was compacted stays missing.
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

// Close leaves the Watcher alone, which others use too.
func (stream) Close() error { return nil }

func (s stream) context(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, streamKey, s.name)
}
