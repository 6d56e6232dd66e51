// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const offset = 1_000_000_000_000

func newView(t *testing.T) (plain, view *kubernetes.Client) {
	t.Helper()
	plain = etcdtest.StartClient(t)
	view = Client(plain, offset)
	t.Cleanup(func() { view.Close() })
	return plain, view
}

func TestNoOffset(t *testing.T) {
	t.Parallel()
	plain := etcdtest.StartClient(t)
	if Client(plain, 0) != plain || KV(plain.KV, 0) != plain.KV || Compactor(compactedAt(7), 0) != compactedAt(7) {
		t.Error("an offset of 0 puts something between")
	}
}

func TestEarlierThanTheOffset(t *testing.T) {
	t.Parallel()
	_, view := newView(t)
	ctx := t.Context()
	put, err := view.Put(ctx, "a", "1")
	expect.NoError(t, err)
	if put.Header.Revision <= offset {
		t.Fatalf("a write was at %d", put.Header.Revision)
	}
	for _, revision := range []int64{1, offset} {
		if _, err := view.Kubernetes.Get(ctx, "a", kubernetes.GetOptions{Revision: revision}); !errors.Is(err, rpctypes.ErrCompacted) {
			t.Errorf("a read at %d: %v", revision, err)
		}
		for r := range view.Watch(ctx, "a", clientv3.WithRev(revision)) {
			if err := r.Err(); !errors.Is(err, rpctypes.ErrCompacted) || r.CompactRevision != offset+1 {
				t.Errorf("a watch from %d: %v, compacted at %d", revision, err, r.CompactRevision)
			}
		}
		r, err := view.Kubernetes.OptimisticDelete(ctx, "a", revision, kubernetes.DeleteOptions{GetOnFailure: true})
		if err != nil || r.Succeeded || r.KV.ModRevision != put.Header.Revision {
			t.Errorf("a delete at %d: %+v, %v", revision, r, err)
		}
	}
	r, err := view.Kubernetes.OptimisticDelete(ctx, "a", put.Header.Revision, kubernetes.DeleteOptions{})
	if err != nil || !r.Succeeded || r.Revision != put.Header.Revision+1 {
		t.Errorf("a delete at the right revision: %+v, %v", r, err)
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	plain, view := newView(t)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	watch := view.Watch(ctx, "a", clientv3.WithCreatedNotify(), clientv3.WithProgressNotify())
	if created := <-watch; !created.Created || created.Header.Revision != offset+1 {
		t.Fatalf("not made as expected: %+v", created)
	}
	put, err := plain.Put(ctx, "elsewhere", "")
	expect.NoError(t, err)
	for {
		expect.NoError(t, view.RequestProgress(ctx))
		select {
		case r := <-watch:
			if !r.IsProgressNotify() || r.Header.Revision < offset+1 {
				t.Fatalf("no progress: %+v, %v", r, r.Err())
			}
			if r.Header.Revision == put.Header.Revision+offset {
				return
			}
		case <-time.After(100 * time.Millisecond): // the member may not have seen the write yet
		}
	}
}

// TestProgressOfMany sends the same progress notification to watches that share a stream.
func TestProgressOfMany(t *testing.T) {
	t.Parallel()
	_, view := newView(t)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var watches []clientv3.WatchChan
	for range 3 {
		watch := view.Watch(ctx, "a", clientv3.WithCreatedNotify())
		<-watch
		watches = append(watches, watch)
	}
	expect.NoError(t, view.RequestProgress(ctx))
	for i, watch := range watches {
		if r := <-watch; !r.IsProgressNotify() || r.Header.Revision != offset+1 {
			t.Errorf("watch %d received %+v, %v", i, r, r.Err())
		}
	}
}

// TestClose ends nothing that a view shares.
func TestClose(t *testing.T) {
	t.Parallel()
	plain, view := newView(t)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	ofPlain := plain.Watch(ctx, "a", clientv3.WithCreatedNotify())
	<-ofPlain
	if err := view.Close(); !errors.Is(err, context.Canceled) { // what a client without a connection of its own returns
		t.Error(err)
	}
	_, err := plain.Put(ctx, "a", "1")
	expect.NoError(t, err)
	if r := <-ofPlain; len(r.Events) != 1 || r.Events[0].Kv.ModRevision != 2 {
		t.Errorf("the client was sent %+v, %v", r, r.Err())
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	_, view := newView(t)
	for _, from := range []int64{0, 1, offset + 1} {
		ctx, cancel := context.WithCancel(t.Context())
		watch := view.Watch(ctx, "a", clientv3.WithRev(from))
		cancel()
		for range watch {
		}
	}
}

func TestLease(t *testing.T) {
	t.Parallel()
	_, view := newView(t)
	granted, err := view.Grant(t.Context(), 60)
	expect.NoError(t, err)
	if granted.Revision != offset+1 {
		t.Errorf("granted at %d, want %d", granted.Revision, offset+1)
	}
}

type compactedAt int64

func (c compactedAt) CompactRevision() int64 { return int64(c) }

func TestCompactor(t *testing.T) {
	t.Parallel()
	if got := Compactor(compactedAt(0), offset).CompactRevision(); got != 0 {
		t.Errorf("what is not known became %d", got)
	}
	if got := Compactor(compactedAt(7), offset).CompactRevision(); got != offset+7 {
		t.Errorf("7 became %d", got)
	}
	if Compactor(nil, offset) != nil {
		t.Error("no compactor became one")
	}
}
