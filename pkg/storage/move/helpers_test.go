// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/test/expect"
)

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

// bound is a transformer that binds a value to its key and its Store, as encryption does.
type bound string

// TransformToStorage implements value.Transformer.
func (b bound) TransformToStorage(_ context.Context, data []byte, of value.Context) ([]byte, error) {
	return []byte(string(b) + string(of.AuthenticatedData()) + "=" + string(data)), nil
}

// TransformFromStorage implements value.Transformer.
func (b bound) TransformFromStorage(_ context.Context, data []byte, of value.Context) ([]byte, bool, error) {
	plain, found := strings.CutPrefix(string(data), string(b)+string(of.AuthenticatedData())+"=")
	if !found {
		return nil, false, fmt.Errorf("it is not bound to %s", of.AuthenticatedData())
	}
	return []byte(plain), false, nil
}

// fixture is a resource in two etcds.
type fixture struct {
	*testing.T
	ctx      context.Context
	from, to *kubernetes.Client
	config   Config
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, ctx: t.Context(), from: etcdtest.StartClient(t), to: etcdtest.StartClient(t)}
	f.configure()
	return f
}

func (f *fixture) configure() {
	f.config = Config{
		Resource: widgets, UID: "move", HostedResource: "hosted",
		From: End{KV: f.from.KV, Watcher: f.from.Watcher, Prefix: "/one", Transformer: bound("1")},
		To:   End{KV: f.to.KV, Watcher: f.to.Watcher, Prefix: "/two", Transformer: bound("2")},
	}
}

// reversed returns the move back.
func (f *fixture) reversed(uid types.UID) Config {
	back := f.config
	back.UID, back.From, back.To = uid, f.config.To, f.config.From
	return back
}

// move returns the UID of a move.
func move(n int) types.UID { return types.UID(fmt.Sprint("move ", n)) }

// put writes an object at an end as the API server does, with no regard to what is frozen.
func put(t testing.TB, e End, name, plain string) {
	t.Helper()
	key := keys.Objects(e.Prefix, widgets) + name
	stored, err := e.Transformer.TransformToStorage(t.Context(), []byte(plain), value.DefaultContext(key))
	expect.NoError(t, err)
	_, err = e.KV.Put(t.Context(), key, string(stored))
	expect.NoError(t, err)
}

func remove(t testing.TB, e End, name string) {
	t.Helper()
	_, err := e.KV.Delete(t.Context(), keys.Objects(e.Prefix, widgets)+name)
	expect.NoError(t, err)
}

// objects returns the plain values of an end.
func objects(t testing.TB, e End) map[string]string {
	t.Helper()
	folder := keys.Objects(e.Prefix, widgets)
	found, err := e.KV.Get(t.Context(), folder, clientv3.WithPrefix())
	expect.NoError(t, err)
	all := map[string]string{}
	for _, kv := range found.Kvs {
		plain, _, err := e.Transformer.TransformFromStorage(t.Context(), kv.Value, value.DefaultContext(kv.Key))
		expect.NoError(t, err)
		all[strings.TrimPrefix(string(kv.Key), folder)] = string(plain)
	}
	return all
}

func (f *fixture) fill(n int) {
	f.Helper()
	for i := range n {
		put(f, f.config.From, fmt.Sprintf("ns/%04d", i), fmt.Sprintf("first %d", i))
	}
}

func (f *fixture) wantEqual() {
	f.Helper()
	expect.Equal(f, objects(f, f.config.From), objects(f, f.config.To), "objects of the source and the target")
}

func (f *fixture) wantState(m interface {
	State(ctx context.Context) (State, error)
}, want State) {
	f.Helper()
	if got, err := m.State(f.ctx); err != nil || got != want {
		f.Errorf("state %s (%v), want %s", got, err, want)
	}
}

// wantError fails the test unless err matches want.
func wantError(t testing.TB, err, want error, explanation ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Error(expect.Explain(fmt.Sprintf("error %v, want %v", err, want), explanation...))
	}
}
