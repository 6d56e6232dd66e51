// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// lease is a shifted clientv3.Lease with Grant alone, which is all that storage uses.
type lease struct {
	clientv3.Lease
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

// Close implements clientv3.Lease. It does not close the shared one.
func (l *lease) Close() error { return nil }
