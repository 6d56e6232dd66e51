// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

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
