// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package revision shifts the revisions of an etcd: in a view of an etcd client every revision,
// in requests, comparisons and responses, is higher than etcd's own by a constant offset.
//
// Clients of a restored resource have seen revisions that the new etcd reaches only much later,
// and revisions must never decrease. With an offset above all of these, they continue from
// there. Revisions from before the restore are answered as compacted, so that clients list
// again.
//
// A view is indistinguishable from a client of an etcd that was compacted at the first revision
// above the offset. Load and Save store offsets in the etcd itself.
package revision

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/feature"
)

// Client returns a view of a client with all revisions higher by offset; the client itself if
// that is 0. Closing the view does not close the client. Requests to etcd's maintenance, cluster
// and auth services are passed on unchanged.
func Client(annexEtcd *kubernetes.Client, offset int64) *kubernetes.Client {
	if offset == 0 {
		return annexEtcd
	}
	// Upstream's storage requests the supported features from the endpoints of a client. A view has
	// no endpoints.
	feature.DefaultFeatureSupportChecker.CheckClient(annexEtcd.Ctx(), annexEtcd, storage.RequestWatchProgress)
	view := clientv3.NewCtxClient(annexEtcd.Ctx())
	view.KV = KV(annexEtcd.KV, offset)
	view.Watcher = &watcher{annexEtcd.Watcher, shift(offset)}
	view.Lease = &lease{etcd: annexEtcd.Lease, shift: shift(offset)}
	view.Cluster, view.Auth, view.Maintenance = annexEtcd.Cluster, annexEtcd.Auth, annexEtcd.Maintenance
	client := &kubernetes.Client{Client: view}
	client.Kubernetes = client
	return client
}

// KV returns a view of the keys and values.
func KV(annexEtcd clientv3.KV, offset int64) clientv3.KV {
	if offset == 0 {
		return annexEtcd
	}
	return newKV(annexEtcd, shift(offset))
}

// Compactor returns a view of the revision of the last compaction.
func Compactor(of etcd3.Compactor, offset int64) etcd3.Compactor {
	if offset == 0 || of == nil {
		return of
	}
	return compactor{of: of, shift: shift(offset)}
}

type compactor struct {
	of    etcd3.Compactor
	shift shift
}

// CompactRevision implements etcd3.Compactor. 0 means unknown.
func (c compactor) CompactRevision() int64 {
	revision := c.of.CompactRevision()
	c.shift.up(&revision)
	return revision
}

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
