// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"errors"
	"maps"
	"testing"

	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestReconcile finds what was written to the source after its watch had ended.
func TestReconcile(t *testing.T) {
	t.Parallel()
	f := newImportFixture(t)
	f.fill(1007)
	f.follow.Quiet = 0
	_, result := f.startCopied()
	close(f.switched)
	expect.NoError(t, <-result)
	want := objects(t, f.config.To)
	source, target := f.config.From, f.config.To

	// Clients write objects here without late changes.
	put(t, target, "ns/0001", "by a client")
	remove(t, target, "ns/0002")
	put(t, target, "ns/client", "by a client")
	want["ns/0001"], want["ns/client"] = "by a client", "by a client"
	delete(want, "ns/0002")
	// Late changes of the first object, of the last one, and of those between pages, of which the sixth ends with 503.
	for _, name := range []string{"ns/", "ns/0000", "ns/0503", "ns/0503x", "ns/1006", "ns/zzzz"} {
		put(t, source, name, "late")
		want[name] = "late"
	}
	for _, name := range []string{"ns/0502", "ns/0504", "ns/0999", "ns/1005"} {
		remove(t, source, name)
		delete(want, name)
	}
	for range 2 {
		expect.NoError(t, NewImporter(f.config).Reconcile(f.ctx, f.source))
		expect.Equal(t, want, objects(t, target), "objects")
	}

	// Late changes of objects that clients have written.
	put(t, source, "ns/0001", "late")
	put(t, source, "ns/0002", "late")
	put(t, source, "ns/client", "late")
	remove(t, target, "ns/0003")
	remove(t, source, "ns/0003")
	put(t, source, "ns/0004", "late")
	put(t, target, "ns/0005", "by a client")
	remove(t, source, "ns/0005")
	delete(want, "ns/0003")
	maps.Copy(want, map[string]string{"ns/0004": "late", "ns/0005": "by a client"})
	var failed *LateError
	if err := NewImporter(f.config).Reconcile(f.ctx, f.source); !errors.As(err, &failed) {
		t.Fatalf("error %v", err)
	}
	// A deletion is not late for an object that was written here: the main cluster's may be older.
	expect.Equal(t, []string{"ns/0001", "ns/0002", "ns/client"}, failed.Objects, "objects with late changes")
	expect.Equal(t, want, objects(t, target), "objects")

	// An object changes between the read and the write of a late change, and then another move freezes the Store.
	i := NewImporter(f.config)
	term, err := i.begin(f.ctx, f.source)
	expect.NoError(t, err)
	c := change{Object: Object{Key: "ns/0004", Value: []byte("late again")}, put: true}
	if written, err := newLate(term).write(f.ctx, c, 1, 1); written || err != nil {
		t.Errorf("written %t (%v) to an object that has changed", written, err)
	}
	_, err = target.KV.Put(f.ctx, keys.Frozen(target.Prefix, widgets), "another")
	expect.NoError(t, err)
	if _, err := newLate(term).write(f.ctx, c, 1, 1); !errors.Is(err, ErrFenced) {
		t.Errorf("a write to a frozen Store: %v, want ErrFenced", err)
	}
	expect.Equal(t, want, objects(t, target), "objects")
}
