// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/dynamic"

	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/move"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// catchUpWithin is less than the minute between bookmarks.
const catchUpWithin = 45 * time.Second

// fixture is a resource of the main cluster, and a Store.
type fixture struct {
	testing.TB
	ctx      context.Context
	resource schema.GroupVersionResource
	widgets  dynamic.ResourceInterface
	source   *maincopy.Source
	to       move.End
}

func newFixture(t testing.TB, group string) *fixture {
	t.Helper()
	resource := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}
	all := clients.For(t, mainCluster.Config)
	define(t, mainCluster.Config, newDefinition(group, "v1"))
	mainCopy, err := maincopy.New(maincopy.Config{Main: mainCluster.Config, Annex: mainCluster.Config})
	expect.NoError(t, err)
	etcd := etcdtest.StartClient(t)
	f := &fixture{
		TB: t, ctx: t.Context(), resource: resource, source: mainCopy.InMain(resource),
		widgets: all.Dynamic.Resource(resource).Namespace(metav1.NamespaceDefault),
		to:      move.End{KV: etcd.KV, Watcher: etcd.Watcher, Prefix: "/annex", Transformer: identity.NewEncryptCheckTransformer()},
	}
	t.Cleanup(f.removeFinalizers)
	poll.UntilNoError(t, "the resource is served", func() error {
		_, err := f.widgets.List(f.ctx, metav1.ListOptions{})
		return err
	})
	return f
}

// removeFinalizers lets the definition go.
func (f *fixture) removeFinalizers() {
	f.ctx = context.Background()
	list, err := f.widgets.List(f.ctx, metav1.ListOptions{})
	expect.Succeeds(f, err)
	for i := range list.Items {
		if len(list.Items[i].GetFinalizers()) > 0 {
			f.remove(list.Items[i].GetName())
		}
	}
}

func (f *fixture) put(name, text string) {
	f.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": f.resource.GroupVersion().String(), "kind": "Widget",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"a": "b"}, "finalizers": []any{"example.com/test"}},
		"spec":     map[string]any{"text": text, "float": 1.5, "integer": int64(1) << 60, "html": "<&>\u2028", "null": nil},
		"status":   map[string]any{"ready": true},
	}}
	_, err := f.widgets.Apply(f.ctx, name, object, metav1.ApplyOptions{FieldManager: "test", Force: true})
	expect.NoError(f, err)
}

func (f *fixture) remove(name string) {
	f.Helper()
	_, err := f.widgets.Patch(f.ctx, name, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	expect.NoError(f, err)
	expect.NoError(f, f.widgets.Delete(f.ctx, name, metav1.DeleteOptions{}))
}

func (f *fixture) importer() *move.Importer {
	return move.NewImporter(move.Config{
		Resource: f.resource.GroupResource(), UID: "import", HostedResource: "hosted", Source: f.source, To: f.to,
	})
}

// stored returns what the main cluster has in its etcd.
func (f *fixture) stored() map[string]string {
	f.Helper()
	return values(f, mainCluster.EtcdKV(), "/registry/"+f.resource.Group+"/widgets/")
}

// copied returns what the Store has.
func (f *fixture) copied() map[string]string {
	f.Helper()
	return values(f, f.to.KV, keys.Objects(f.to.Prefix, f.resource.GroupResource()))
}

func values(t testing.TB, etcd clientv3.KV, folder string) map[string]string {
	t.Helper()
	found, err := etcd.Get(t.Context(), folder, clientv3.WithPrefix())
	expect.NoError(t, err)
	all := map[string]string{}
	for _, kv := range found.Kvs {
		all[strings.TrimPrefix(string(kv.Key), folder)] = string(kv.Value)
	}
	return all
}

// wantStored checks that the Store has byte for byte what the main cluster's etcd has.
func (f *fixture) wantStored() {
	f.Helper()
	if diff := cmp.Diff(f.stored(), f.copied()); diff != "" {
		f.Errorf("stored objects (-main cluster +annex):\n%s", diff)
	}
}

// TestImport copies and follows a resource of a real API server, and switches. Objects arrive byte for
// byte as the main cluster stores them.
func TestImport(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "import.example.com")
	for i := range 60 {
		f.put(fmt.Sprintf("w%02d", i), "first")
	}
	i := f.importer()
	expect.NoError(t, i.Check(f.ctx))
	expect.NoError(t, i.Copy(f.ctx))
	f.wantStored()
	f.put("w00", "changed")
	f.put("x", "new")
	f.remove("w01")
	caughtUp, opened, result := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	prove, proven, switched := make(chan struct{}), make(chan struct{}), make(chan struct{})
	began := time.Now()
	go func() {
		result <- i.Follow(f.ctx, move.FollowOptions{
			CaughtUp: func() { close(caughtUp) }, Prove: prove, Proven: func() { close(proven) }, Opened: func() { close(opened) }, Switch: switched,
			Quiet: 500 * time.Millisecond, Settle: 2 * time.Second, Lowest: f.source.Revision,
		})
	}()
	await(t, caughtUp, result)
	if took := time.Since(began); took > catchUpWithin {
		t.Errorf("it has caught up after %s", took)
	} else {
		t.Logf("it has caught up after %s", took)
	}
	f.wantStored()
	expect.NoError(t, i.Verify(f.ctx))
	f.put("w02", "before the switch")
	began = time.Now()
	close(prove)
	await(t, proven, result)
	t.Logf("it is proven after %s that the watch delivers what is written", time.Since(began))
	f.wantStored()
	close(switched)
	f.put("w03", "after it")
	await(t, opened, result)
	f.wantStored()
	f.put("w04", "late")
	f.remove("w05")
	expect.NoError(t, <-result)
	f.wantStored()
}

func await(t testing.TB, step <-chan struct{}, result <-chan error) {
	t.Helper()
	select {
	case <-step:
	case err := <-result:
		t.Fatalf("it ended with %v", err)
	}
}

// TestProgress waits for progress of a watch without changes, and of one with changes.
func TestProgress(t *testing.T) {
	f := newFixture(t, "progress.example.com")
	f.put("a", "first")
	after, err := f.source.Revision(f.ctx)
	expect.NoError(t, err)
	w, err := f.source.Watch(f.ctx, after)
	expect.NoError(t, err)
	for round := range 2 {
		want := map[string]bool{}
		if round == 1 {
			f.put("b", "second")
			f.remove("a")
			want = map[string]bool{"default/b": false, "default/a": true}
		}
		// A write of any resource raises the revision.
		expect.NoError(t, mainCluster.PutEtcdKey(f.ctx, "/unrelated", "x"))
		revision, err := f.source.Revision(f.ctx)
		expect.NoError(t, err)
		began := time.Now()
		got, complete := map[string]bool{}, int64(0)
		deadline := time.NewTimer(catchUpWithin)
		for complete < revision {
			expect.NoError(t, w.RequestProgress(f.ctx, revision))
			select {
			case events := <-w.Events():
				expect.NoError(t, events.Err)
				complete = max(complete, events.Complete)
				for _, c := range events.Changes {
					got[c.Key] = c.Deleted
				}
			case <-time.After(50 * time.Millisecond):
			case <-deadline.C:
				t.Fatalf("round %d: it is complete up to %d, want %d", round, complete, revision)
			}
		}
		t.Logf("round %d: progress after %s", round, time.Since(began))
		if !maps.Equal(got, want) {
			t.Errorf("round %d: changes %v, want %v", round, got, want)
		}
	}
}

// TestCompacted reads and watches revisions that etcd has compacted.
func TestCompacted(t *testing.T) {
	f := newFixture(t, "compacted.example.com")
	f.put("a", "first")
	now, err := f.source.Revision(f.ctx)
	expect.NoError(t, err)
	_, err = mainCluster.EtcdKV().Compact(f.ctx, now, clientv3.WithCompactPhysical())
	expect.NoError(t, err)
	for _, after := range []string{"", "default/0"} {
		if _, _, err := f.source.Page(f.ctx, after, 10, 2); !errors.Is(err, move.ErrCompacted) {
			t.Errorf("a page after %q at a compacted revision: %v", after, err)
		}
	}
	w, err := f.source.Watch(f.ctx, 2)
	if err == nil {
		err = (<-w.Events()).Err
	}
	if !errors.Is(err, move.ErrCompacted) {
		t.Errorf("a watch of a compacted revision: %v", err)
	}
}
