// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"

	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
)

// watcher is a Watcher behind the breaker of a Store.
type watcher struct{ store *Store }

// Watch implements clientv3.Watcher. As with etcd's client, a watch survives an
// unreachable etcd. It ends when its Store gets another connection; the caller then watches from
// the last revision.
func (w *watcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	g := w.store.current(ctx)
	if g.unavailable != nil {
		return refusedWatch(ctx, g.unavailable)
	}
	// etcd's client selects the stream of a watch by the values of the context.
	bound, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(g.connection.retired, cancel)
	events := g.connection.watcher.Watch(bound, key, opts...)
	return etcdkv.Watch(bound, func(send func(clientv3.WatchResponse) bool) {
		defer cancel()
		defer stop()
		for response := range events {
			if header := response.Header; header != nil && header.ClusterId != 0 && header.ClusterId != g.cluster {
				response = etcdkv.FailedWatch(w.store.tripWrongCluster(g, header.ClusterId))
			} else if err := w.store.verifyStreams(bound, g); err != nil {
				response = etcdkv.FailedWatch(err)
			}
			if !send(response) || response.Canceled {
				return
			}
		}
	})
}

// refusalDelay delays the end of a refused watch, which watch caches retry at once.
const refusalDelay = time.Second

// refusedWatch returns a watch that ends with the reason after refusalDelay.
func refusedWatch(ctx context.Context, err error) clientv3.WatchChan {
	return etcdkv.Watch(ctx, func(send func(clientv3.WatchResponse) bool) {
		pause(ctx, refusalDelay, nil)
		send(etcdkv.FailedWatch(err))
	})
}

// RequestProgress implements clientv3.Watcher.
func (w *watcher) RequestProgress(ctx context.Context) error {
	g := w.store.breaker.Load()
	if g.unavailable != nil {
		return g.unavailable
	}
	return asStoreError(w.store.name, g.connection.watcher.RequestProgress(ctx))
}

// streams counts the watch streams of a connection. etcd's client silently reopens a broken
// stream, which may lead to other data. A stream that is not broken stays with the process that
// it was opened to.
type streams struct {
	// opened counts streams that were answered, and verified is its value when the fence was
	// last found to hold.
	opened, verified atomic.Int64
	// verifying is the lock for verifying the fence.
	verifying *semaphore.Weighted
}

// countedStreams counts streams.
type countedStreams struct {
	etcdserverpb.WatchClient
	streams *streams
}

// Watch implements etcdserverpb.WatchClient.
func (c countedStreams) Watch(ctx context.Context, opts ...grpc.CallOption) (etcdserverpb.Watch_WatchClient, error) {
	stream, err := c.WatchClient.Watch(ctx, opts...)
	if err != nil {
		return nil, err
	}
	count := sync.OnceFunc(func() { c.streams.opened.Add(1) })
	return countedStream{stream, count}, nil
}

type countedStream struct {
	etcdserverpb.Watch_WatchClient
	count func()
}

// Recv implements etcdserverpb.Watch_WatchClient. gRPC may reopen a stream until the first
// answer, so only answered streams count.
func (s countedStream) Recv() (*etcdserverpb.WatchResponse, error) {
	response, err := s.Watch_WatchClient.Recv()
	if err == nil {
		s.count()
	}
	return response, err
}

// verifyStreams returns when the fence was found to hold after all streams were opened, so their
// events are of the data that annex knows. It retries while etcd does not answer, and fails for
// other data.
func (s *Store) verifyStreams(ctx context.Context, g *breaker) error {
	if g.fence == nil {
		return nil
	}
	streams := &g.connection.streams
	opened := streams.opened.Load()
	for streams.verified.Load() < opened {
		if err := streams.verifying.Acquire(ctx, 1); err != nil {
			return err
		}
		err := s.verifyStreamsOnce(ctx, g)
		streams.verifying.Release(1)
		switch {
		case isOtherData(err):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			pause(ctx, readPause, nil)
		}
	}
	return nil
}

func (s *Store) verifyStreamsOnce(ctx context.Context, g *breaker) error {
	opened := g.connection.streams.opened.Load()
	if g.connection.streams.verified.Load() >= opened {
		return nil // verified by another watch
	}
	if current := s.breaker.Load(); current.connection == g.connection && current.fence != nil {
		g = current
	}
	c := &call{breaker: g, store: s, caller: ctx, floor: s.highest.Load(), checkpoint: g.fence.checkpoint.Load()}
	if err := c.verify(ctx); err != nil {
		return err
	}
	g.connection.streams.verified.Store(opened)
	return nil
}

// isOtherData reports whether an error means that the etcd does not have the data of its Store.
func isOtherData(err error) bool {
	var refused *UnavailableError
	return errors.As(err, &refused) && refused.isOtherData()
}

// Close implements clientv3.Watcher. Watches end with their contexts.
func (*watcher) Close() error { return nil }

// lease is a Lease behind the breaker of a Store, with Grant alone, which is all that storage uses.
type lease struct {
	clientv3.Lease
	store *Store
}

// Grant implements clientv3.Lease.
func (l *lease) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	ctx, c, err := l.store.admit(ctx, "lease")
	if err != nil {
		return nil, err
	}
	defer c.end()
	response, err := c.connection.client.Grant(ctx, ttl)
	if err != nil {
		return nil, c.check(nil, err)
	}
	return response, c.check(response.ResponseHeader, nil)
}

// Close implements clientv3.Lease. Leases expire.
func (*lease) Close() error { return nil }
