// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package freeze

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/layer/revision"
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
	client := etcdtest.Dial(t, endpoint)
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

// freeze freezes widgets for the return to the main cluster, or a move.
func (r *replica) freeze(purpose string) {
	r.Helper()
	_, err := r.KV.Put(r.Context(), keys.Frozen(r.Prefix, widgets), purpose)
	expect.NoError(r, err)
}

// closing is revision.Close or revision.Return.
type closing func(prefix string, resource schema.GroupResource, before revision.State, hosted types.UID) clientv3.Op

// closeResource closes widgets as a move does.
func (r *replica) closeResource(closed closing) {
	r.Helper()
	before, err := revision.LoadState(r.Context(), r.KV, r.Prefix, widgets)
	expect.NoError(r, err)
	_, err = r.KV.Txn(r.Context()).Then(closed(r.Prefix, widgets, before, "hosted"), clientv3.OpPut(keys.Tombstone(r.Prefix, widgets), "")).Commit()
	expect.NoError(r, err)
}

// TestFreeze holds writes, and reads continue.
func TestFreeze(t *testing.T) {
	t.Parallel()
	for purpose, message := range map[string]string{
		Returning: "annex is returning widgets.example.com to the main cluster, try again", "uid": "annex is moving widgets.example.com, try again",
	} {
		t.Run(message, func(t *testing.T) {
			t.Parallel()
			r := newReplica(t, start(t))
			made, err := r.put(t.Context(), "one")
			if err != nil || !made.Succeeded {
				t.Fatalf("before: %v, %+v", err, made)
			}
			if again, err := r.put(t.Context(), "one"); err != nil || again.Succeeded || again.KV == nil {
				t.Errorf("an object that exists: %v, %+v", err, again)
			}
			r.freeze(purpose)
			_, exists := r.put(t.Context(), "one")
			_, created := r.put(t.Context(), "two")
			_, deleted := r.guarded.OptimisticDelete(t.Context(), r.key("one"), made.Revision, kubernetes.DeleteOptions{})
			for what, err := range map[string]error{"create again": exists, "create": created, "delete": deleted} {
				if !IsHeld(err) || !apierrors.IsServiceUnavailable(err) || err.Error() != message {
					t.Errorf("%s while it is frozen: %v", what, err)
				}
			}
			_, err = r.guarded.KV.Get(t.Context(), r.key("one"))
			expect.NoError(t, err)
			if count, err := r.Objects(t.Context()); err != nil || count != 1 {
				t.Errorf("%d objects: %v, want 1", count, err)
			}
			_, err = r.KV.Delete(t.Context(), keys.Frozen(r.Prefix, widgets))
			expect.NoError(t, err)
			if made, err := r.put(t.Context(), "two"); err != nil || !made.Succeeded {
				t.Errorf("after: %v, %+v", err, made)
			}
			select {
			case <-r.gate.Changed():
				t.Error("the gate reports a change")
			default:
			}
		})
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
