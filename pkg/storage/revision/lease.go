// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// lease is a shifted clientv3.Lease. The one below it is shared.
type lease struct {
	etcd  clientv3.Lease
	shift shift
}

// Grant implements clientv3.Lease.
func (l *lease) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	r, err := l.etcd.Grant(ctx, ttl)
	if r != nil {
		l.shift.header(r.ResponseHeader)
	}
	return r, err
}

// Revoke implements clientv3.Lease.
func (l *lease) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	r, err := l.etcd.Revoke(ctx, id)
	if r != nil {
		l.shift.header(r.Header)
	}
	return r, err
}

// TimeToLive implements clientv3.Lease.
func (l *lease) TimeToLive(ctx context.Context, id clientv3.LeaseID, options ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse, error) {
	r, err := l.etcd.TimeToLive(ctx, id, options...)
	if r != nil {
		l.shift.header(r.ResponseHeader)
	}
	return r, err
}

// Leases implements clientv3.Lease.
func (l *lease) Leases(ctx context.Context) (*clientv3.LeaseLeasesResponse, error) {
	r, err := l.etcd.Leases(ctx)
	if r != nil {
		l.shift.header(r.ResponseHeader)
	}
	return r, err
}

// KeepAliveOnce implements clientv3.Lease.
func (l *lease) KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	r, err := l.etcd.KeepAliveOnce(ctx, id)
	return l.keptAlive(r), err
}

// KeepAlive implements clientv3.Lease.
func (l *lease) KeepAlive(ctx context.Context, id clientv3.LeaseID) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	in, err := l.etcd.KeepAlive(ctx, id)
	if err != nil {
		return nil, err
	}
	out := make(chan *clientv3.LeaseKeepAliveResponse, cap(in))
	go func() {
		defer close(out)
		for r := range in {
			select {
			case out <- l.keptAlive(r):
			default: // as in etcd's client if the receiver does not read
			}
		}
	}()
	return out, nil
}

// keptAlive returns a shifted copy: all goroutines that keep a lease alive receive the same
// response.
func (l *lease) keptAlive(r *clientv3.LeaseKeepAliveResponse) *clientv3.LeaseKeepAliveResponse {
	if r == nil || r.ResponseHeader == nil {
		return r
	}
	header := &etcdserverpb.ResponseHeader{
		ClusterId: r.ClusterId, MemberId: r.MemberId, Revision: r.Revision, RaftTerm: r.RaftTerm,
	}
	l.shift.header(header)
	return &clientv3.LeaseKeepAliveResponse{ResponseHeader: header, ID: r.ID, TTL: r.TTL}
}

// Close implements clientv3.Lease. It does not close the shared one.
func (l *lease) Close() error { return nil }
