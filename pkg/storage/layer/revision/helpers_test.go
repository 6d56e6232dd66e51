// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// timeout bounds each wait of a test.
const timeout = 30 * time.Second

// offsetOfTwins is small, so that requests often are at the edges of it.
const offsetOfTwins = 10

// twins returns two indistinguishable clients: a plain one of an etcd that is compacted at the
// first revision above the offset, and a view of a new etcd by that offset.
func twins(t testing.TB) (plain, view *kubernetes.Client) {
	t.Helper()
	plain = etcdtest.StartClient(t)
	for range offsetOfTwins / 2 {
		_, err := plain.Put(t.Context(), "before", "x")
		expect.NoError(t, err)
		_, err = plain.Delete(t.Context(), "before")
		expect.NoError(t, err)
	}
	_, err := plain.Compact(t.Context(), offsetOfTwins+1, clientv3.WithCompactPhysical())
	expect.NoError(t, err)
	view = Client(etcdtest.StartClient(t), offsetOfTwins)
	t.Cleanup(func() { view.Close() })
	return plain, view
}
