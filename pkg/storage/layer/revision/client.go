// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
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
	// Upstream's storage asks the endpoints of a client which features they support. A view has
	// none.
	feature.DefaultFeatureSupportChecker.CheckClient(annexEtcd.Ctx(), annexEtcd, storage.RequestWatchProgress)
	view := clientv3.NewCtxClient(annexEtcd.Ctx())
	view.KV = KV(annexEtcd.KV, offset)
	view.Watcher = newWatcher(annexEtcd.Watcher, shift(offset))
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
