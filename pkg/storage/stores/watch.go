// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// watcher is a Watcher behind the gate of a Store.
type watcher struct{ store *Store }

// Watch implements clientv3.Watcher. A watch outlasts that the etcd is away, as
// etcd's own do; it ends when its Store gets another connection, and who watches
// goes on from where it was.
func (w *watcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	g := w.store.current(ctx)
	if g.refused != nil {
		return refusedWatch(ctx, g.refused)
	}
	// The stream that a watch shares is found by the values of the context.
	bound, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(g.connection.retired, cancel)
	events := g.connection.client.Watch(bound, key, opts...)
	checked := make(chan clientv3.WatchResponse)
	go func() {
		defer close(checked)
		defer cancel()
		defer stop()
		for response := range events {
			if header := response.Header; header != nil && header.ClusterId != 0 && header.ClusterId != g.cluster {
				response = failedWatch(w.store.refuseCluster(g, header.ClusterId))
			}
			select {
			case checked <- response:
			case <-bound.Done():
				return
			}
			if response.Canceled {
				return
			}
		}
	}()
	return checked
}

// refusalDelay is how long a watch that is refused keeps who asked waiting. Watch
// caches ask again at once, without end.
const refusalDelay = time.Second

// refusedWatch is a watch that ends with the reason, after a while.
func refusedWatch(ctx context.Context, err error) clientv3.WatchChan {
	responses := make(chan clientv3.WatchResponse, 1)
	go func() {
		defer close(responses)
		select {
		case <-ctx.Done():
		case <-time.After(refusalDelay):
			responses <- failedWatch(err)
		}
	}()
	return responses
}

func failedWatch(err error) clientv3.WatchResponse {
	return clientv3.WatchResponse{Canceled: true, CancelReason: err.Error()}
}

// RequestProgress implements clientv3.Watcher.
func (w *watcher) RequestProgress(ctx context.Context) error {
	g := w.store.gate.Load()
	if g.refused != nil {
		return g.refused
	}
	return translate(w.store.name, g.connection.client.RequestProgress(ctx))
}

// Close implements clientv3.Watcher. Watches end with their contexts.
func (*watcher) Close() error { return nil }

// lease is a Lease behind the gate of a Store.
type lease struct{ store *Store }

// Grant implements clientv3.Lease.
func (l *lease) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	ctx, c, err := l.store.pass(ctx, "lease")
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

// Revoke implements clientv3.Lease.
func (l *lease) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	ctx, c, err := l.store.pass(ctx, "lease")
	if err != nil {
		return nil, err
	}
	defer c.end()
	response, err := c.connection.client.Revoke(ctx, id)
	return response, translate(l.store.name, err)
}

// TimeToLive implements clientv3.Lease.
func (l *lease) TimeToLive(ctx context.Context, id clientv3.LeaseID, opts ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse, error) {
	ctx, c, err := l.store.pass(ctx, "lease")
	if err != nil {
		return nil, err
	}
	defer c.end()
	response, err := c.connection.client.TimeToLive(ctx, id, opts...)
	return response, translate(l.store.name, err)
}

// Leases implements clientv3.Lease.
func (l *lease) Leases(ctx context.Context) (*clientv3.LeaseLeasesResponse, error) {
	ctx, c, err := l.store.pass(ctx, "lease")
	if err != nil {
		return nil, err
	}
	defer c.end()
	response, err := c.connection.client.Leases(ctx)
	return response, translate(l.store.name, err)
}

// KeepAlive implements clientv3.Lease.
func (l *lease) KeepAlive(ctx context.Context, id clientv3.LeaseID) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	g := l.store.gate.Load()
	if g.refused != nil {
		return nil, g.refused
	}
	return g.connection.client.KeepAlive(ctx, id)
}

// KeepAliveOnce implements clientv3.Lease.
func (l *lease) KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	ctx, c, err := l.store.pass(ctx, "lease")
	if err != nil {
		return nil, err
	}
	defer c.end()
	response, err := c.connection.client.KeepAliveOnce(ctx, id)
	return response, translate(l.store.name, err)
}

// Close implements clientv3.Lease. Leases end by themselves.
func (*lease) Close() error { return nil }
