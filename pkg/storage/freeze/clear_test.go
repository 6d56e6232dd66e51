// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package freeze

import (
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/annex-dev/annex/pkg/storage/keys"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestClear deletes the objects of a resource that was returned. Watches end before, and requests are refused
// as before.
func TestClear(t *testing.T) {
	t.Parallel()
	r := newReplica(t, start(t))
	const objects = deletedAtOnce + 10
	for i := range objects {
		_, err := r.put(t.Context(), fmt.Sprintf("ns/%04d", i))
		expect.NoError(t, err)
	}
	watch := r.guarded.Watch(t.Context(), keys.Objects(r.Prefix, widgets), clientv3.WithPrefix())
	_, err := r.Freeze(t.Context())
	expect.NoError(t, err)
	for range 2 {
		expect.NoError(t, r.Return(t.Context(), "hosted"))
		expect.NoError(t, r.Clear(t.Context()))
	}
	for response := range watch {
		for _, event := range response.Events {
			if event.Type == clientv3.EventTypeDelete {
				t.Errorf("the watch has the deletion of %s", event.Kv.Key)
			}
		}
	}
	if _, err := r.put(t.Context(), "ns/late"); !IsReturned(err) {
		t.Errorf("a write to a closed resource: %v, want a ReturnedError", err)
	}
	if left, err := r.Objects(t.Context()); err != nil || left > 0 {
		t.Errorf("%d objects are left (%v)", left, err)
	}
}
