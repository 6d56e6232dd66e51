// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestSaved(t *testing.T) {
	t.Parallel()
	etcd, ctx := etcdtest.StartClient(t), t.Context()
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	gadgets := schema.GroupResource{Group: "example.com", Resource: "gadgets"}
	for i, step := range []struct {
		resource         schema.GroupResource
		save             int64
		widgets, gadgets int64
	}{
		{resource: widgets, save: 0, widgets: 0, gadgets: 0},
		{resource: widgets, save: 5, widgets: 5, gadgets: 0},
		{resource: widgets, save: 4, widgets: 5, gadgets: 0},
		{resource: AllResources, save: 3, widgets: 5, gadgets: 3},
		{resource: AllResources, save: 7, widgets: 7, gadgets: 7},
		{resource: gadgets, save: 9, widgets: 7, gadgets: 9},
		{resource: AllResources, save: 1, widgets: 7, gadgets: 9},
	} {
		expect.NoError(t, Save(ctx, etcd.KV, "/annex", step.resource, step.save))
		for resource, want := range map[schema.GroupResource]int64{widgets: step.widgets, gadgets: step.gadgets} {
			if got, err := Load(ctx, etcd.KV, "annex", resource); err != nil || got != want {
				t.Errorf("step %d: %s is shifted by %d, %v; want %d", i, resource, got, err, want)
			}
		}
	}
	if got, err := Load(ctx, etcd.KV, "/another", widgets); err != nil || got != 0 {
		t.Errorf("another prefix is shifted by %d, %v", got, err)
	}
}

// TestClosed closes a resource, which stays closed when its offset is raised, until it is opened.
func TestClosed(t *testing.T) {
	t.Parallel()
	etcd, ctx := etcdtest.StartClient(t), t.Context()
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	for i, step := range []struct {
		change func(before State) (clientv3.Op, error)
		want   State
	}{
		{func(before State) (clientv3.Op, error) { return Close("/annex", widgets, before, "one"), nil }, State{Offset: 1, Closed: true, ClosedFor: "one"}},
		{func(before State) (clientv3.Op, error) { return Return("/annex", widgets, before, "two"), nil }, State{Offset: 2, Closed: true, Returned: true, ClosedFor: "two"}},
		{func(before State) (clientv3.Op, error) { return Close("/annex", widgets, before, "three"), nil }, State{Offset: 3, Closed: true, ClosedFor: "three"}},
		{func(before State) (clientv3.Op, error) { return Open("/annex", widgets, before, 0) }, State{Offset: 4}},
	} {
		before, err := LoadState(ctx, etcd.KV, "/annex", widgets)
		expect.NoError(t, err)
		change, err := step.change(before)
		expect.NoError(t, err)
		_, err = etcd.Txn(ctx).Then(change).Commit()
		expect.NoError(t, err)
		expect.NoError(t, Save(ctx, etcd.KV, "/annex", widgets, step.want.Offset))
		got, err := LoadState(ctx, etcd.KV, "/annex", widgets)
		got.ModRevision, got.own = 0, 0
		if err != nil || got != step.want {
			t.Errorf("step %d: %+v (%v), want %+v", i, got, err, step.want)
		}
	}
}

// TestConcurrentSaves keeps the highest, in any order.
func TestConcurrentSaves(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.StartClient(t)
	var savers sync.WaitGroup
	for offset := range int64(50) {
		savers.Go(func() {
			if err := Save(t.Context(), etcd.KV, "/annex", AllResources, offset); err != nil {
				t.Error(err)
			}
		})
	}
	savers.Wait()
	if got, err := Load(t.Context(), etcd.KV, "/annex", AllResources); err != nil || got != 49 {
		t.Errorf("the highest is %d, %v; want 49", got, err)
	}
}

func TestInvalidOffsets(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.StartClient(t)
	for _, offset := range []int64{-1, highestOffset + 1} {
		if err := Save(t.Context(), etcd.KV, "/annex", AllResources, offset); err == nil {
			t.Errorf("%d was saved", offset)
		}
	}
	for _, value := range []string{"", "-1", "many", "9223372036854775807", " returned one"} {
		_, err := etcd.Put(t.Context(), keys.Revisions("/annex"), value)
		expect.NoError(t, err)
		_, err = Load(t.Context(), etcd.KV, "/annex", schema.GroupResource{Resource: "widgets"})
		if err == nil || !strings.Contains(err.Error(), keys.Revisions("/annex")) {
			t.Errorf("%q was loaded, or the error does not name the key: %v", value, err)
		}
		if err := Save(t.Context(), etcd.KV, "/annex", AllResources, 1); err == nil {
			t.Errorf("%q was overwritten", value)
		}
	}
}

func TestRaise(t *testing.T) {
	t.Parallel()
	etcd, ctx := etcdtest.StartClient(t), t.Context()
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	for i, step := range []struct {
		resource schema.GroupResource
		floor    int64
	}{{widgets, 1000}, {widgets, 1000}, {widgets, 500}, {widgets, 2000}, {AllResources, 1500}, {AllResources, 5000}, {widgets, 4000}} {
		expect.NoError(t, Raise(ctx, etcd.KV, "/annex", step.resource, step.floor))
		offset, err := Load(ctx, etcd.KV, "/annex", step.resource)
		expect.NoError(t, err)
		written, err := etcd.Put(ctx, "/annex/x", "")
		expect.NoError(t, err)
		if next := written.Header.GetRevision() + offset; next <= step.floor {
			t.Errorf("step %d: the next revision is %d, want more than %d", i, next, step.floor)
		}
		highest, err := HighestOffset(ctx, etcd.KV, "/annex")
		if err != nil || highest < offset {
			t.Errorf("step %d: the highest offset is %d, %v; one is %d", i, highest, err, offset)
		}
	}
	if highest, err := HighestOffset(ctx, etcd.KV, "/another"); err != nil || highest != 0 {
		t.Errorf("another prefix has %d, %v", highest, err)
	}
	before, err := Load(ctx, etcd.KV, "/annex", widgets)
	expect.NoError(t, err)
	expect.NoError(t, Raise(ctx, etcd.KV, "/annex", widgets, 1))
	if after, err := Load(ctx, etcd.KV, "/annex", widgets); err != nil || after != before {
		t.Errorf("an offset that is enough changed from %d to %d, %v", before, after, err)
	}
}
