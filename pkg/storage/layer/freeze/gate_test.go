// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package freeze

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/annex-dev/annex/pkg/storage/layer/revision"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestClosed sends every kind of request to a closed resource.
func TestClosed(t *testing.T) {
	t.Parallel()
	requests := map[string]func(ctx context.Context, r *replica) error{
		"get": func(ctx context.Context, r *replica) error {
			_, err := r.guarded.KV.Get(ctx, r.key("one"))
			return err
		},
		"list": func(ctx context.Context, r *replica) error {
			_, err := r.guarded.KV.Get(ctx, r.key(""), clientv3.WithPrefix(), clientv3.WithLimit(1))
			return err
		},
		"count": func(ctx context.Context, r *replica) error {
			_, err := r.guarded.KV.Get(ctx, r.key(""), clientv3.WithPrefix(), clientv3.WithCountOnly())
			return err
		},
		"stream": func(ctx context.Context, r *replica) error {
			parts, err := r.guarded.GetStream(ctx, r.key(""), clientv3.WithPrefix())
			expect.NoError(r, err)
			for part := range parts {
				err = errors.Join(err, part.Err())
			}
			return err
		},
		"transaction that reads": func(ctx context.Context, r *replica) error {
			_, err := r.guarded.Txn(ctx).Then(clientv3.OpGet(r.key("one"))).Commit()
			return err
		},
		"create": func(ctx context.Context, r *replica) error { _, err := r.put(ctx, "two"); return err },
		"delete": func(ctx context.Context, r *replica) error {
			_, err := r.guarded.OptimisticDelete(ctx, r.key("one"), 1, kubernetes.DeleteOptions{})
			return err
		},
	}
	for name, request := range requests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReplica(t, start(t))
			_, err := r.put(t.Context(), "one")
			expect.NoError(t, err)
			if err := request(t.Context(), r); err != nil {
				t.Fatalf("before: %v", err)
			}
			for _, tc := range []struct {
				what   string
				change func()
				want   func(error) bool
			}{
				{"opened again", func() { expect.NoError(t, revision.Save(t.Context(), r.KV, r.Prefix, widgets, 1000)) }, IsHeld},
				{"closed", func() { r.closeResource(revision.Close) }, IsHeld},
				{"returned", func() { r.closeResource(revision.Return) }, IsReturned},
			} {
				tc.change()
				err := request(t.Context(), r)
				if name == "stream" { // its error is only a text
					expect.Error(t, err, "try again")
				} else if !tc.want(err) || !apierrors.IsServiceUnavailable(err) {
					t.Errorf("%s: error %v", tc.what, err)
				} else if seconds, retries := apierrors.SuggestsClientDelay(err); !retries || seconds == 0 {
					t.Errorf("%s: %v has no Retry-After", tc.what, err)
				}
			}
			<-r.gate.Changed()
		})
	}
}

// TestWatchEnds: no watch receives what happens after the closing.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		key     string
		options []clientv3.OpOption
		closed  closing
	}{
		"all objects":    {"", []clientv3.OpOption{clientv3.WithPrefix()}, revision.Close},
		"of a namespace": {"ns/", []clientv3.OpOption{clientv3.WithPrefix()}, revision.Return},
		"one object":     {"ns/one", nil, revision.Close},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endpoint := start(t)
			r, other := newReplica(t, endpoint), newReplica(t, endpoint)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			watch := func() clientv3.WatchChan { return r.guarded.Watch(ctx, r.key(tc.key), tc.options...) }
			events := watch()
			made, err := other.put(ctx, "ns/one")
			expect.NoError(t, err)
			// A watch that is verified only after the closing ends without events.
			got := revisions(t, <-events)
			changed, err := other.guarded.OptimisticPut(ctx, r.key("ns/one"), []byte("{2}"), made.Revision, kubernetes.PutOptions{})
			if err != nil || !changed.Succeeded {
				t.Fatal(err, changed)
			}
			r.closeResource(tc.closed)
			_, err = r.KV.Delete(ctx, r.key(""), clientv3.WithPrefix())
			expect.NoError(t, err)
			_, err = r.KV.Put(ctx, r.key("ns/one"), "moved back")
			expect.NoError(t, err)
			for response := range events {
				got = append(got, revisions(t, response)...)
			}
			want := []int64{made.Revision, changed.Revision}
			// The change may be missing in a watch that cannot prove that it came before the closing.
			if !slices.Equal(got, want) && (tc.key == "" || !slices.Equal(got, want[:1])) {
				t.Errorf("events %v, want %v", got, want)
			}
			<-r.gate.Changed()
			if _, open := <-watch(); open {
				t.Error("a watch of a closed resource has a response")
			}
		})
	}
}

// revisions returns the revision of each event in a response.
func revisions(t *testing.T, response clientv3.WatchResponse) []int64 {
	t.Helper()
	expect.NoError(t, response.Err())
	var revisions []int64
	for _, event := range response.Events {
		revisions = append(revisions, event.Kv.ModRevision)
	}
	return revisions
}

// TestProgressEnds: no watch reports progress beyond the closing.
func TestProgressEnds(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{"all objects": "", "of a namespace": "ns/", "one object": "ns/one"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReplica(t, start(t))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			events := r.guarded.Watch(ctx, r.key(key), clientv3.WithPrefix())
			_, err := r.put(ctx, "ns/one")
			expect.NoError(t, err)
			revisions(t, <-events) // etcd reports no progress before the watch is as new as it is
			other, err := r.KV.Put(ctx, "other", "")
			expect.NoError(t, err)
			expect.NoError(t, r.guarded.RequestProgress(ctx))
			if response := <-events; !response.IsProgressNotify() || response.Header.Revision < other.Header.Revision {
				t.Errorf("while it is open: %+v, want progress at %d at least", response, other.Header.Revision)
			}
			r.closeResource(revision.Return)
			expect.NoError(t, r.guarded.RequestProgress(ctx))
			if response, open := <-events; open {
				t.Fatalf("after the closing: %+v, want the end", response)
			}
			<-r.gate.Changed()
		})
	}
}

// TestHistory: what was before the resource was opened is compacted.
func TestHistory(t *testing.T) {
	t.Parallel()
	endpoint := start(t)
	before := newReplica(t, endpoint)
	old, err := before.put(t.Context(), "old")
	expect.NoError(t, err)
	before.closeResource(revision.Close)
	state, err := revision.LoadState(t.Context(), before.KV, before.Prefix, widgets)
	expect.NoError(t, err)
	open, err := revision.Open(before.Prefix, widgets, state, 0)
	expect.NoError(t, err)
	opened, err := before.KV.Txn(t.Context()).Then(open).Commit()
	expect.NoError(t, err)
	r := newReplica(t, endpoint)
	made, err := r.put(t.Context(), "one")
	expect.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for at, want := range map[int64]bool{old.Revision: false, opened.Header.Revision: true, made.Revision: true} {
		if _, err := r.guarded.KV.Get(ctx, r.key(""), clientv3.WithPrefix(), clientv3.WithRev(at)); (err == nil) != want || !want && !errors.Is(err, rpctypes.ErrCompacted) {
			t.Errorf("read at %d, opened at %d: %v", at, opened.Header.Revision, err)
		}
		response := <-r.guarded.Watch(ctx, r.key(""), clientv3.WithPrefix(), clientv3.WithRev(at+1), clientv3.WithCreatedNotify())
		if (response.Err() == nil) != want || !want && response.CompactRevision != opened.Header.Revision+1 {
			t.Errorf("watch after %d, opened at %d: %v, compacted %d", at, opened.Header.Revision, response.Err(), response.CompactRevision)
		}
	}
}
