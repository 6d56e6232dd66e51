// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// tenfold returns ten times the size for values that begin with "z" or "?". Those with "?"
// are unknown while blind.
type tenfold struct{ blind atomic.Bool }

func (m *tenfold) plainSize(value []byte) (int64, bool) {
	switch {
	case bytes.HasPrefix(value, []byte("?")) && m.blind.Load():
		return 0, false
	case bytes.HasPrefix(value, []byte("?")), bytes.HasPrefix(value, []byte("z")):
		return 10 * int64(len(value)), true
	default:
		return int64(len(value)), true
	}
}

func (e *testEtcd) putValue(t testing.TB, key, value string) int64 {
	t.Helper()
	r, err := e.client.Put(t.Context(), key, value)
	expect.NoError(t, err)
	return r.Header.Revision
}

func TestPlainBytes(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	const key = "/annex/example.com/widgets/default/w"
	etcd.putValue(t, key, "z2345")
	tracker := NewTracker(etcd.client, "annex", (&tenfold{}).plainSize)
	run(t, tracker)
	steps := []struct {
		name string
		do   func()
		want Usage
	}{
		{"existing value", func() {}, Usage{Objects: 1, Bytes: 5, PlainBytes: 50}},
		{"a plain value", func() { etcd.putValue(t, key+"2", "123") }, Usage{Objects: 2, Bytes: 8, PlainBytes: 53}},
		{"compress it", func() { etcd.putValue(t, key+"2", "z") }, Usage{Objects: 2, Bytes: 6, PlainBytes: 60}},
		{"decompress the first", func() { etcd.putValue(t, key, "12345") }, Usage{Objects: 2, Bytes: 6, PlainBytes: 15}},
		{"delete the first", func() { etcd.delete(t, key) }, Usage{Objects: 1, Bytes: 1, PlainBytes: 10}},
	}
	for _, step := range steps {
		step.do()
		etcd.caughtUp(t, tracker)
		if got := tracker.Usage(widgets); got != step.want {
			t.Errorf("%s: %+v, want %+v", step.name, got, step.want)
		}
		if got := tracker.Namespace(widgets, "default"); got != step.want {
			t.Errorf("%s: %+v in the namespace, want %+v", step.name, got, step.want)
		}
	}
}

// TestUnknownSizes: the size that was added is subtracted, even if it becomes known or
// unknown in between.
func TestUnknownSizes(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	const key = "/annex/example.com/widgets/default/w"
	sizes := &tenfold{}
	tracker := NewTracker(etcd.client, "annex", sizes.plainSize)
	want := func(what string, want Usage) {
		t.Helper()
		etcd.caughtUp(t, tracker)
		poll.Until(t, what, func() string { return cmp.Diff(want, tracker.Usage(widgets)) })
	}
	sizes.blind.Store(true)
	etcd.putValue(t, key, "?12")
	run(t, tracker)
	want("read while unknown", plain(1, 3))
	sizes.blind.Store(false)
	etcd.putValue(t, key+"2", "?12")
	want("written while known", Usage{Objects: 2, Bytes: 6, PlainBytes: 33})
	etcd.putValue(t, key, "?1")
	want("replaced while known", Usage{Objects: 2, Bytes: 5, PlainBytes: 50})
	sizes.blind.Store(true)
	// The old size is lost, so all keys are read again.
	etcd.delete(t, key)
	want("deleted while unknown", plain(1, 3))
	sizes.blind.Store(false)
	etcd.delete(t, key+"2")
	want("deleted while known again", Usage{})
	if tracker.Total() != (Usage{}) {
		t.Errorf("%+v is left", tracker.Total())
	}
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	etcd.put(t, "/annex/configmaps/a/x", 10)
	etcd.put(t, "/annex/configmaps/b/x", 20)
	etcd.put(t, "/annex/example.com/widgets/a/w", 30)
	etcd.put(t, "/annex/hosting.annex.dev/stores/default", 5)
	tracker := etcd.track(t, "annex")
	etcd.put(t, "/annex/example.com/widgets/a/v", 3)
	etcd.put(t, "/annex/example.com/widgets/b/v", 4)
	etcd.caughtUp(t, tracker)
	tests := []struct {
		resource  schema.GroupResource
		namespace string
		want      Usage
	}{
		{configMaps, "a", plain(1, 10)},
		{configMaps, "b", plain(1, 20)},
		{widgets, "a", plain(2, 33)},
		{widgets, "b", plain(1, 4)},
		{widgets, "c", Usage{}},
		{stores, "default", Usage{}},
		{stores, "", Usage{}},
	}
	for _, tt := range tests {
		if got := tracker.Namespace(tt.resource, tt.namespace); got != tt.want {
			t.Errorf("%s in %q: %+v, want %+v", tt.resource, tt.namespace, got, tt.want)
		}
	}
	etcd.delete(t, "/annex/example.com/widgets/b/v")
	etcd.caughtUp(t, tracker)
	tracker.mu.RLock()
	defer tracker.mu.RUnlock()
	if got := len(tracker.counts.of(widgets).byNamespace); got != 1 {
		t.Errorf("%d namespaces of widgets are remembered, want 1", got)
	}
}

func TestInternalKeysAreNotCounted(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	etcd.put(t, "/annex/_annex/store", 10)
	etcd.put(t, "/annex/_annex/dictionaries/example.com/widgets/1", 1000)
	tracker := etcd.track(t, "annex")
	<-tracker.Synced()
	etcd.put(t, "/annex/_annex/limits/example.com/widgets", 1)
	last := etcd.put(t, "/annex/_annex/limits/example.com/widgets", 2)
	expect.NoError(t, tracker.WaitFor(t.Context(), last))
	if got := tracker.all(); len(got) > 0 || tracker.Total() != (Usage{}) {
		t.Errorf("internal keys are counted: %v", got)
	}
	etcd.put(t, "/annex/configmaps/_annex/x", 1) // a name, not the segment
	etcd.wantExact(t, tracker)
}

func TestWaitFor(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	tracker := etcd.track(t, "annex")
	for range 100 {
		last := etcd.put(t, "/annex/configmaps/a/x", 10)
		expect.NoError(t, tracker.WaitFor(t.Context(), last))
		if got := tracker.Revision(); got < last {
			t.Fatalf("at revision %d, waited for %d", got, last)
		}
	}
	// etcd reports writes outside the prefix only on a progress request.
	elsewhere := etcd.put(t, "/elsewhere/x", 1)
	ctx, cancel := context.WithTimeout(t.Context(), poll.Timeout)
	defer cancel()
	expect.NoError(t, tracker.WaitFor(ctx, elsewhere))
	ctx, cancel = context.WithTimeout(t.Context(), 3*progressDelay)
	defer cancel()
	if err := tracker.WaitFor(ctx, elsewhere+1000); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait for a future revision: %v", err)
	}
}

func TestConcurrentWaitFor(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	tracker := etcd.track(t, "annex")
	done := make(chan error)
	const writers, writes = 8, 50
	for writer := range writers {
		go func() {
			done <- func() error {
				for range writes {
					r, err := etcd.client.Put(t.Context(), "/annex/configmaps/a/"+string(rune('a'+writer)), "value")
					if err != nil {
						return err
					}
					if err := tracker.WaitFor(t.Context(), r.Header.Revision); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range writers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if got := tracker.Namespace(configMaps, "a"); got != plain(writers, writers*5) {
		t.Errorf("%+v", got)
	}
}

// stalled is an etcd that does not respond.
type stalled struct{ Etcd }

func (stalled) Get(ctx context.Context, _ string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestWaitForUnavailableEtcd(t *testing.T) {
	t.Parallel()
	tracker := NewTracker(stalled{}, "annex", nil)
	run(t, tracker)
	ctx, cancel := context.WithTimeout(t.Context(), progressDelay/2)
	defer cancel()
	if err := tracker.WaitFor(ctx, 5); err == nil || !strings.Contains(err.Error(), "/annex/ at revision 5, it is at 0") {
		t.Errorf("got %v", err)
	}
}

func TestAggregator(t *testing.T) {
	t.Parallel()
	first, second := startEtcd(t), startEtcd(t)
	first.put(t, "/annex/configmaps/a/x", 10)
	second.put(t, "/two/configmaps/a/x", 5)
	second.put(t, "/two/example.com/widgets/a/w", 30)
	aggregator := NewAggregator()
	if aggregator.Usage(widgets) != (Usage{}) {
		t.Error("the usage without Stores is not zero")
	}
	seen := &storeRecorder{recorder: recorder{changed: map[schema.GroupResource]int{}}, stores: make(chan string, 1000)}
	remove, removeStores := aggregator.AddHandler(seen), aggregator.AddStoreHandler(seen)
	a, b := first.track(t, "annex"), second.track(t, "two")
	down := NewTracker(stalled{}, "annex", nil)
	aggregator.Add("default", a)
	aggregator.Add("second", b)
	first.caughtUp(t, a)
	second.caughtUp(t, b)
	if got, want := aggregator.Usage(configMaps), plain(2, 15); got != want {
		t.Errorf("configmaps in both: %+v, want %+v", got, want)
	}
	if got, known := aggregator.Store("second"); got != plain(2, 35) || !known {
		t.Errorf("second has %+v (%t)", got, known)
	}
	aggregator.Add("down", down)
	if _, known := aggregator.Store("down"); known {
		t.Error("the usage of a Store that never responded is known")
	}
	if _, known := aggregator.Store("other"); known {
		t.Error("the usage of a Store that does not exist is known")
	}
	if got, known := aggregator.In("second", widgets); got != plain(1, 30) || !known {
		t.Errorf("widgets in second: %+v (%t)", got, known)
	}
	if got, known := aggregator.In("default", widgets); got != (Usage{}) || !known {
		t.Errorf("widgets in default: %+v (%t)", got, known)
	}
	second.put(t, "/two/example.com/widgets/a/v", 1)
	for store := range seen.stores {
		if _, changed := seen.of(widgets); changed && store == "second" {
			break
		}
	}
	aggregator.Remove("down")
	aggregator.Remove("second")
	aggregator.Remove("second")
	if got, want := aggregator.Usage(configMaps), plain(1, 10); got != want {
		t.Errorf("configmaps in the remaining Store: %+v, want %+v", got, want)
	}
	before, _ := seen.of(widgets)
	second.put(t, "/two/example.com/widgets/a/u", 1)
	second.caughtUp(t, b)
	if after, _ := seen.of(widgets); after != before {
		t.Error("a Store that was removed is reported")
	}
	for range 2 {
		remove()
		removeStores()
	}
}

type storeRecorder struct {
	recorder
	stores chan string
}

func (r *storeRecorder) StoreUsageChanged(store string) { r.stores <- store }

func (r *storeRecorder) of(resource schema.GroupResource) (int, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	count, changed := r.changed[resource]
	return count, changed
}

func TestAggregatorReplacesTracker(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	etcd.put(t, "/annex/configmaps/a/x", 10)
	etcd.put(t, "/other/configmaps/a/x", 20)
	a, b := etcd.track(t, "annex"), etcd.track(t, "other")
	aggregator := NewAggregator()
	aggregator.Add("default", a)
	aggregator.Add("default", b)
	etcd.caughtUp(t, a)
	etcd.caughtUp(t, b)
	if got, want := aggregator.Usage(configMaps), plain(1, 20); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := aggregator.Tracker("default"); got != b {
		t.Error("the tracker was not replaced")
	}
}

func TestNamespaceOfKey(t *testing.T) {
	t.Parallel()
	for rest, want := range map[string]string{"": "", "/": "", "/name": "", "/ns/name": "ns", "/ns/": "ns", "//name": "", "/ns/a/b": "ns"} {
		if got := string(namespaceOf([]byte(rest))); got != want {
			t.Errorf("%q: %q, want %q", rest, got, want)
		}
	}
}
