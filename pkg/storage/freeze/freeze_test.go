// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package freeze

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/storage/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/storage/keys"
	"github.com/annex-dev/annex/pkg/storage/revision"
	"github.com/annex-dev/annex/pkg/test/expect"
)

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

// replica is a client of an etcd with what annex puts between it and a resource.
type replica struct {
	*testing.T
	Target
	gate    *Gate
	guarded *kubernetes.Client
}

func newReplica(t *testing.T, endpoint string) *replica {
	t.Helper()
	client, err := kubernetes.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	expect.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	r := &replica{T: t, Target: Target{KV: client.KV, Prefix: "/annex", Resource: widgets}}
	state, err := revision.LoadState(t.Context(), client.KV, r.Prefix, widgets)
	expect.NoError(t, err)
	r.gate = NewGate(r.Target, state)
	view := clientv3.NewCtxClient(t.Context())
	view.KV, view.Watcher = r.gate.KV(), r.gate.Watcher(client.Watcher)
	r.guarded = &kubernetes.Client{Client: view}
	return r
}

func start(t *testing.T) (endpoint string) {
	t.Helper()
	return etcdtest.Start(t, nil).Endpoint()
}

func (r *replica) key(name string) string { return keys.Objects(r.Prefix, widgets) + name }

// put creates an object as the API server does.
func (r *replica) put(ctx context.Context, name string) (kubernetes.PutResponse, error) {
	return r.guarded.OptimisticPut(ctx, r.key(name), []byte("{}"), 0, kubernetes.PutOptions{GetOnFailure: true})
}

func TestFreeze(t *testing.T) {
	t.Parallel()
	r := newReplica(t, start(t))
	made, err := r.put(t.Context(), "one")
	if err != nil || !made.Succeeded {
		t.Fatalf("before: %v, %+v", err, made)
	}
	if again, err := r.put(t.Context(), "one"); err != nil || again.Succeeded || again.KV == nil {
		t.Errorf("an object that exists: %v, %+v", err, again)
	}
	revision, err := r.Freeze(t.Context())
	expect.NoError(t, err)
	if found, err := r.Frozen(t.Context()); err != nil || found != revision {
		t.Errorf("frozen at %d: %v, want %d", found, err, revision)
	}
	for _, name := range []string{"one", "two"} {
		if _, err := r.put(t.Context(), name); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("create %s while it is frozen: %v", name, err)
		}
	}
	if _, err := r.guarded.OptimisticDelete(t.Context(), r.key("one"), made.Revision, kubernetes.DeleteOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("delete while it is frozen: %v", err)
	}
	if count, err := r.Objects(t.Context()); err != nil || count != 1 {
		t.Errorf("%d objects: %v, want 1", count, err)
	}
	if _, err := r.put(t.Context(), "two"); !IsHeld(err) {
		t.Errorf("a write while it is frozen: %v, want it held", err)
	}
	other := *r
	other.Resource.Resource = "gadgets"
	if frozen, err := other.Frozen(t.Context()); err != nil || frozen != 0 {
		t.Errorf("another resource is frozen at %d: %v", frozen, err)
	}

	again, err := r.Freeze(t.Context())
	if err != nil || again <= revision {
		t.Fatalf("frozen anew at %d: %v, want more than %d", again, err, revision)
	}
	for _, step := range []struct{ thaw, frozen int64 }{{revision, again}, {again, 0}, {again, 0}} {
		expect.NoError(t, r.Thaw(t.Context(), step.thaw))
		if frozen, err := r.Frozen(t.Context()); err != nil || frozen != step.frozen {
			t.Errorf("after thawing what was frozen at %d it is frozen at %d: %v, want %d", step.thaw, frozen, err, step.frozen)
		}
	}
	if made, err := r.put(t.Context(), "two"); err != nil || !made.Succeeded {
		t.Errorf("after: %v, %+v", err, made)
	}
}

// TestReturn refuses reads and writes, and ends watches.
func TestReturn(t *testing.T) {
	t.Parallel()
	r := newReplica(t, start(t))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var watches []clientv3.WatchChan
	for _, of := range []string{"", "ns/"} {
		watches = append(watches, r.guarded.Watch(ctx, r.key(of), clientv3.WithPrefix()))
	}
	_, err := r.put(ctx, "ns/one")
	expect.NoError(t, err)
	for _, events := range watches {
		revisions(t, <-events)
	}
	_, err = r.Freeze(ctx)
	expect.NoError(t, err)
	for range 2 { // a process that ended may have done so
		expect.NoError(t, r.Return(ctx, "hosted"))
	}
	if frozen, err := r.Frozen(ctx); err != nil || frozen != 0 {
		t.Errorf("frozen at %d after it was returned: %v", frozen, err)
	}
	if objects, err := r.Objects(ctx); err != nil || objects != 1 {
		t.Errorf("%d objects after it was returned (%v), want 1", objects, err)
	}
	_, written := r.put(ctx, "ns/two")
	_, read := r.guarded.KV.Get(ctx, r.key("ns/one"))
	for what, err := range map[string]error{"a write": written, "a read": read} {
		if !IsReturned(err) || !apierrors.IsServiceUnavailable(err) {
			t.Errorf("%s after it was returned: %v, want a ReturnedError", what, err)
		}
	}
	// The first event that the watch of a namespace has to judge.
	_, err = r.KV.Delete(ctx, r.key(""), clientv3.WithPrefix())
	expect.NoError(t, err)
	for i, events := range watches {
		for response := range events {
			t.Errorf("watch %d after it was returned: %+v", i, response)
		}
	}
	if _, err := r.guarded.KV.Get(ctx, r.key("ns/one")); !IsReturned(err) {
		t.Errorf("a read after it was cleared: %v, want a ReturnedError", err)
	}
	for _, hosted := range []types.UID{"hosted", "later"} { // that was never requested
		expect.NoError(t, r.Return(ctx, hosted))
		if state, err := revision.LoadState(ctx, r.KV, r.Prefix, widgets); err != nil || !state.Returned || state.ClosedFor != hosted {
			t.Errorf("returned for %s: %+v (%v)", hosted, state, err)
		}
	}
}

// TestOnlyTransactions: what cannot be guarded is refused.
func TestOnlyTransactions(t *testing.T) {
	t.Parallel()
	r := newReplica(t, start(t))
	kv, key := r.guarded.KV, r.key("one")
	for what, write := range map[string]func() error{
		"put":       func() error { _, err := kv.Put(t.Context(), key, ""); return err },
		"delete":    func() error { _, err := kv.Delete(t.Context(), key); return err },
		"do":        func() error { _, err := kv.Do(t.Context(), clientv3.OpPut(key, "")); return err },
		"otherwise": func() error { _, err := kv.Txn(t.Context()).Else(clientv3.OpPut(key, "")).Commit(); return err },
	} {
		if err := write(); err == nil {
			t.Errorf("%s: written", what)
		}
	}
	if count, err := r.Objects(t.Context()); err != nil || count > 0 {
		t.Errorf("%d objects: %v", count, err)
	}
}

// TestStaleReplicas: no replica is notified, and no write that one of them acknowledges is
// missed.
func TestStaleReplicas(t *testing.T) {
	t.Parallel()
	endpoint := start(t)
	leader := newReplica(t, endpoint)
	var writers sync.WaitGroup
	acknowledged := make([]int64, 4)
	for i := range acknowledged {
		other := newReplica(t, endpoint)
		writers.Go(func() {
			for object := 0; ; object++ {
				made, err := other.put(t.Context(), fmt.Sprintf("%d-%d", i, object))
				if err != nil {
					if !apierrors.IsServiceUnavailable(err) {
						t.Error(err)
					}
					return
				}
				if made.Succeeded {
					acknowledged[i]++
				}
			}
		})
	}
	for count := int64(0); count < 50; {
		var err error
		count, err = leader.Objects(t.Context())
		expect.NoError(t, err)
	}
	_, err := leader.Freeze(t.Context())
	expect.NoError(t, err)
	counted, err := leader.Objects(t.Context())
	expect.NoError(t, err)
	writers.Wait()
	var want int64
	for _, of := range acknowledged {
		want += of
	}
	if counted != want {
		t.Errorf("%d objects counted, %d acknowledged", counted, want)
	}
}
