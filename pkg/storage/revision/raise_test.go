// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestRaise(t *testing.T) {
	t.Parallel()
	etcd, ctx := startEtcd(t), t.Context()
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	for i, step := range []struct {
		resource schema.GroupResource
		floor    int64
	}{{widgets, 1000}, {widgets, 1000}, {widgets, 500}, {widgets, 2000}, {AllResources, 1500}, {AllResources, 5000}, {widgets, 4000}} {
		if err := Raise(ctx, etcd.KV, "/annex", step.resource, step.floor); err != nil {
			t.Fatal(err)
		}
		offset, err := Load(ctx, etcd.KV, "/annex", step.resource)
		if err != nil {
			t.Fatal(err)
		}
		written, err := etcd.Put(ctx, "/annex/x", "")
		if err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	if err := Raise(ctx, etcd.KV, "/annex", widgets, 1); err != nil {
		t.Fatal(err)
	}
	if after, err := Load(ctx, etcd.KV, "/annex", widgets); err != nil || after != before {
		t.Errorf("an offset that is enough changed from %d to %d, %v", before, after, err)
	}
}
