// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/faultproxy"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// testEtcd is an etcd that can be restarted.
type testEtcd struct {
	config embeddedetcd.Config
	server *embeddedetcd.Server
	client *clientv3.Client
}

func startEtcd(t testing.TB) *testEtcd {
	t.Helper()
	dir := etcdtest.ShortDir(t)
	etcd := &testEtcd{config: embeddedetcd.Config{
		Dir: filepath.Join(dir, "etcd"), SocketPath: filepath.Join(dir, "etcd", "client.sock"), UnsafeNoFsync: true,
	}}
	etcd.start(t)
	t.Cleanup(func() { etcd.server.Close() })
	etcd.client = etcdtest.Dial(t, etcd.endpoint()).Client
	return etcd
}

func (e *testEtcd) start(t testing.TB) {
	t.Helper()
	server, err := embeddedetcd.Start(t.Context(), e.config)
	expect.NoError(t, err)
	e.server = server
}

func (e *testEtcd) restart(t testing.TB) {
	t.Helper()
	expect.NoError(t, e.server.Close())
	e.start(t)
}

func (e *testEtcd) endpoint() string { return "unix://" + e.config.SocketPath }

func (e *testEtcd) put(t testing.TB, key string, size int) int64 {
	t.Helper()
	r, err := e.client.Put(t.Context(), key, strings.Repeat("v", size))
	expect.NoError(t, err)
	return r.Header.Revision
}

func (e *testEtcd) delete(t testing.TB, key string) int64 {
	t.Helper()
	r, err := e.client.Delete(t.Context(), key)
	expect.NoError(t, err)
	return r.Header.Revision
}

func (e *testEtcd) compact(t testing.TB, revision int64) {
	t.Helper()
	_, err := e.client.Compact(t.Context(), revision)
	expect.NoError(t, err)
}

func (e *testEtcd) track(t testing.TB, prefix string) *Tracker {
	t.Helper()
	return e.trackThrough(t, e.endpoint(), prefix)
}

func (e *testEtcd) trackThrough(t testing.TB, endpoint, prefix string) *Tracker {
	t.Helper()
	tracker := NewTracker(etcdtest.Dial(t, endpoint).Client, prefix, nil)
	run(t, tracker)
	return tracker
}

// caughtUp waits until the tracker has counted every write.
func (e *testEtcd) caughtUp(t testing.TB, tracker *Tracker) {
	t.Helper()
	r, err := e.client.Get(t.Context(), tracker.root, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend), clientv3.WithLimit(1))
	expect.NoError(t, err)
	last := int64(1)
	if len(r.Kvs) > 0 {
		last = r.Kvs[0].ModRevision
	}
	reached := func(revision int64) {
		t.Helper()
		poll.UntilDone(t, fmt.Sprintf("the tracker has synced to revision %d", revision), func() (bool, string) {
			return tracker.HasSynced() && tracker.Revision() >= revision, fmt.Sprint(tracker.Revision())
		})
	}
	reached(last)
	// Deletions leave no key, so one more write marks the end.
	end := e.put(t, tracker.root+"end-of-test", 1)
	reached(end)
	reached(e.delete(t, tracker.root+"end-of-test"))
}

// wantExact compares with a count of all keys.
func (e *testEtcd) wantExact(t testing.TB, tracker *Tracker) {
	t.Helper()
	e.caughtUp(t, tracker)
	r, err := e.client.Get(t.Context(), tracker.root, clientv3.WithPrefix())
	expect.NoError(t, err)
	want, total := map[schema.GroupResource]Usage{}, Usage{}
	for _, kv := range r.Kvs {
		parts := strings.Split(strings.TrimPrefix(string(kv.Key), tracker.root), "/")
		resource := schema.GroupResource{Resource: parts[0]}
		if strings.Contains(parts[0], ".") {
			resource = schema.GroupResource{Group: parts[0], Resource: parts[1]}
		}
		if parts[0] == "_annex" {
			continue
		}
		one := plain(1, int64(len(kv.Value)))
		sum := want[resource]
		sum.add(one)
		want[resource] = sum
		total.add(one)
	}
	if diff := cmp.Diff(want, tracker.all()); diff != "" {
		t.Errorf("usage differs (-want +got):\n%s", diff)
	}
	if got := tracker.Total(); got != total {
		t.Errorf("total is %+v, want %+v", got, total)
	}
}

// all returns the usage by resource.
func (t *Tracker) all() map[schema.GroupResource]Usage {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make(map[schema.GroupResource]Usage, len(t.counts.byPrefix))
	for _, counter := range t.counts.byPrefix {
		all[counter.resource] = counter.usage
	}
	return all
}

// plain returns the usage of uncompressed objects.
func plain(objects, bytes int64) Usage {
	return Usage{Objects: objects, Bytes: bytes, PlainBytes: bytes}
}

func run(t testing.TB, tracker *Tracker) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tracker.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func newProxy(t *testing.T, etcd *testEtcd) *faultproxy.Proxy {
	t.Helper()
	l, err := faultproxy.New(t.Context(), etcd.config.SocketPath)
	expect.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}
