// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

var (
	configMaps = schema.GroupResource{Resource: "configmaps"}
	widgets    = schema.GroupResource{Group: "example.com", Resource: "widgets"}
	stores     = schema.GroupResource{Group: "hosting.annex.dev", Resource: "stores"}
)

func TestTrackerLoad(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	etcd.put(t, "/annex/configmaps/default/a", 10)
	etcd.put(t, "/annex/configmaps/kube-system/b", 20)
	etcd.put(t, "/annex/example.com/widgets/default/w", 30)
	etcd.put(t, "/annex/example.com/widgetsets/default/w", 1)
	etcd.put(t, "/annex/hosting.annex.dev/stores/default", 5)
	etcd.put(t, "/annexed/configmaps/default/a", 1000)
	etcd.put(t, "/ann", 1000)
	etcd.put(t, "compact_rev_key", 1000)
	tracker := etcd.track(t, "annex")
	etcd.caughtUp(t, tracker)

	want := map[schema.GroupResource]Usage{
		configMaps: plain(2, 30),
		widgets:    plain(1, 30),
		stores:     plain(1, 5),
		{Group: "example.com", Resource: "widgetsets"}: plain(1, 1),
	}
	if diff := cmp.Diff(want, tracker.all()); diff != "" {
		t.Errorf("usage differs (-want +got):\n%s", diff)
	}
	if got, want := tracker.Total(), plain(5, 66); got != want {
		t.Errorf("total is %+v, want %+v", got, want)
	}
	if got := tracker.Usage(schema.GroupResource{Group: "example.com", Resource: "configmaps"}); got != (Usage{}) {
		t.Errorf("a resource without objects has %+v", got)
	}
}

func TestTrackerFollow(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	tracker := etcd.track(t, "/annex")
	const key = "/annex/example.com/widgets/default/w"
	txn := func(ops ...clientv3.Op) func(t *testing.T) {
		return func(t *testing.T) {
			_, err := etcd.client.Txn(t.Context()).Then(ops...).Commit()
			expect.NoError(t, err)
		}
	}
	steps := []struct {
		name string
		do   func(t *testing.T)
		want Usage
	}{
		{"nothing", func(*testing.T) {}, Usage{}},
		{"create", func(t *testing.T) { etcd.put(t, key, 100) }, plain(1, 100)},
		{"grow", func(t *testing.T) { etcd.put(t, key, 300) }, plain(1, 300)},
		{"shrink", func(t *testing.T) { etcd.put(t, key, 50) }, plain(1, 50)},
		{"same size", func(t *testing.T) { etcd.put(t, key, 50) }, plain(1, 50)},
		{"second object", func(t *testing.T) { etcd.put(t, key+"2", 7) }, plain(2, 57)},
		{"big value", func(t *testing.T) { etcd.put(t, key+"3", 1<<20) }, plain(3, 57+1<<20)},
		{"big value again", func(t *testing.T) { etcd.put(t, key+"3", 1<<20+1) }, plain(3, 58+1<<20)},
		{"transaction", txn(
			clientv3.OpDelete(key+"3"), clientv3.OpPut(key, "1"), clientv3.OpPut(key+"4", "22"),
		), plain(3, 1+7+2)},
		{"empty value", func(t *testing.T) { etcd.put(t, key+"5", 0) }, plain(4, 10)},
		{"create and delete in a range", txn(clientv3.OpDelete(key, clientv3.WithPrefix())), Usage{}},
		{"create again", func(t *testing.T) { etcd.put(t, key, 9) }, plain(1, 9)},
		{"lease expires", func(t *testing.T) {
			lease, err := etcd.client.Grant(t.Context(), 60)
			expect.NoError(t, err)
			_, err = etcd.client.Put(t.Context(), key+"6", "x", clientv3.WithLease(lease.ID))
			expect.NoError(t, err)
			_, err = etcd.client.Revoke(t.Context(), lease.ID)
			expect.NoError(t, err)
		}, plain(1, 9)},
	}
	for _, step := range steps {
		step.do(t)
		etcd.caughtUp(t, tracker)
		if got := tracker.Usage(widgets); got != step.want {
			t.Fatalf("after %s: %+v, want %+v", step.name, got, step.want)
		}
	}
	etcd.wantExact(t, tracker)
}

func TestTrackerForgetsEmptyResources(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	tracker := etcd.track(t, "annex")
	for i := range 20 {
		key := fmt.Sprintf("/annex/g%d.example.com/widgets/w", i)
		etcd.put(t, key, 5)
		etcd.delete(t, key)
	}
	etcd.put(t, "/annex/configmaps/a/b", 5)
	etcd.caughtUp(t, tracker)
	tracker.mu.RLock()
	defer tracker.mu.RUnlock()
	if len(tracker.counts.byPrefix) != 1 {
		t.Errorf("%d resources are remembered, want 1", len(tracker.counts.byPrefix))
	}
}

func TestTrackerReadsInPages(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	for i := range 60 {
		etcd.put(t, fmt.Sprintf("/annex/configmaps/a/%04d", i), 10)
	}
	for i := range 5 {
		etcd.put(t, fmt.Sprintf("/annex/example.com/widgets/a/%04d", i), 1<<20)
	}
	for i := range 200 {
		etcd.put(t, fmt.Sprintf("/annex/secrets/a/%04d", i), 10)
	}
	etcd.wantExact(t, etcd.track(t, "annex"))
}

func TestTrackerWithConcurrentWriters(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	tracker := etcd.track(t, "annex")
	var wg sync.WaitGroup
	for writer := range 8 {
		random := rand.New(rand.NewPCG(uint64(writer), 1))
		wg.Go(func() {
			for range 200 {
				key := fmt.Sprintf("/annex/g%d.example.com/widgets/%d", random.IntN(3), random.IntN(20))
				if random.IntN(3) == 0 {
					if _, err := etcd.client.Delete(t.Context(), key); err != nil {
						t.Error(err)
					}
				} else if _, err := etcd.client.Put(t.Context(), key, strings.Repeat("v", random.IntN(2000))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	late := etcd.track(t, "annex")
	wg.Wait()
	etcd.wantExact(t, tracker)
	etcd.wantExact(t, late)
}

func TestTrackerAfterEtcdRestart(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	etcd.put(t, "/annex/configmaps/a/b", 5)
	tracker := etcd.track(t, "annex")
	etcd.caughtUp(t, tracker)
	etcd.restart(t)
	etcd.put(t, "/annex/configmaps/a/b", 50)
	etcd.put(t, "/annex/configmaps/a/c", 1)
	etcd.wantExact(t, tracker)
}

func TestTrackerAfterCompaction(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, etcd *testEtcd){
		"next revision": func(t *testing.T, etcd *testEtcd) {
			etcd.put(t, "/annex/configmaps/a/b", 50)
			etcd.delete(t, "/annex/configmaps/a/c")
			etcd.compact(t, etcd.put(t, "/annex/configmaps/a/d", 5))
		},
		// etcd sends the event without the previous value.
		"previous value of an update": func(t *testing.T, etcd *testEtcd) {
			etcd.compact(t, etcd.put(t, "/annex/configmaps/a/b", 50))
		},
		"previous value of a deletion": func(t *testing.T, etcd *testEtcd) {
			etcd.compact(t, etcd.delete(t, "/annex/configmaps/a/b"))
		},
	}
	for name, compact := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			etcd := startEtcd(t)
			etcd.put(t, "/annex/configmaps/a/b", 5)
			etcd.put(t, "/annex/configmaps/a/c", 5)
			proxy := newProxy(t, etcd)
			tracker := etcd.trackThrough(t, "http://"+proxy.Address(), "annex")
			etcd.caughtUp(t, tracker)
			proxy.Cut()
			compact(t, etcd)
			proxy.Restore()
			etcd.put(t, "/annex/configmaps/a/e", 1)
			etcd.wantExact(t, tracker)
		})
	}
}

func TestTrackerDetectsLowerRevision(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	etcd.put(t, "/annex/configmaps/a/b", 5)
	tracker := NewTracker(etcd.client, "annex", nil)
	tracker.revision = 1000 // of an etcd that was replaced
	if _, err := tracker.step(t.Context()); !errors.Is(err, errRevisionWentBack) {
		t.Errorf("got %v, want %v", err, errRevisionWentBack)
	}
	run(t, tracker)
	etcd.wantExact(t, tracker)
}

func TestTrackerWaitsForEtcd(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	etcd.put(t, "/annex/configmaps/a/b", 5)
	proxy := newProxy(t, etcd)
	proxy.Cut()
	tracker := etcd.trackThrough(t, "http://"+proxy.Address(), "annex")
	if tracker.HasSynced() {
		t.Error("synced without an etcd")
	}
	proxy.Restore()
	<-tracker.Synced()
	if !tracker.HasSynced() {
		t.Error("not synced")
	}
	etcd.wantExact(t, tracker)
}

// recorder is a Handler.
type recorder struct {
	mu      sync.Mutex
	all     int
	changed map[schema.GroupResource]int
}

func (r *recorder) UsageChanged(resource schema.GroupResource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed[resource]++
}

func (r *recorder) AllUsageChanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all++
}

func TestHandlers(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	tracker := NewTracker(etcd.client, "annex", nil)
	seen := &recorder{changed: map[schema.GroupResource]int{}}
	tracker.AddHandler(seen)
	run(t, tracker)
	<-tracker.Synced()

	etcd.put(t, "/annex/configmaps/a/b", 5)
	etcd.put(t, "/annex/configmaps/a/b", 5) // changes nothing
	if _, err := etcd.client.Txn(t.Context()).Then(
		clientv3.OpPut("/annex/example.com/widgets/a", "1"),
		clientv3.OpPut("/annex/example.com/widgets/b", "1"),
	).Commit(); err != nil {
		t.Fatal(err)
	}
	etcd.delete(t, "/annex/example.com/widgets/a")
	etcd.caughtUp(t, tracker)
	poll.UntilDone(t, "the handler is notified of every change", func() (bool, string) {
		seen.mu.Lock()
		defer seen.mu.Unlock()
		done := seen.all == 1 && seen.changed[configMaps] == 1 && seen.changed[widgets] >= 1 && seen.changed[widgets] <= 2
		return done, fmt.Sprint(seen.all, seen.changed)
	})
}

func TestAddAndRemoveHandlers(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	tracker := etcd.track(t, "annex")
	<-tracker.Synced() // the first load reports AllUsageChanged only
	changes := func(r *recorder) int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.changed[configMaps]
	}
	first, second := &recorder{changed: map[schema.GroupResource]int{}}, &recorder{changed: map[schema.GroupResource]int{}}
	waitChanges := func(wantFirst, wantSecond int) {
		t.Helper()
		poll.Until(t, "changes seen by both handlers", func() string {
			return cmp.Diff([]int{wantFirst, wantSecond}, []int{changes(first), changes(second)})
		})
	}
	removeFirst := tracker.AddHandler(first)
	// Registering a handler twice makes two registrations.
	removeAgain := tracker.AddHandler(first)
	etcd.put(t, "/annex/configmaps/a/b", 1)
	etcd.caughtUp(t, tracker)
	waitChanges(2, 0)

	removeAgain()
	tracker.AddHandler(second)
	etcd.put(t, "/annex/configmaps/a/c", 1)
	etcd.caughtUp(t, tracker)
	waitChanges(3, 1)

	removeFirst()
	removeFirst()
	etcd.put(t, "/annex/configmaps/a/d", 1)
	etcd.caughtUp(t, tracker)
	waitChanges(3, 2)
}

func TestApplyIsAllOrNothing(t *testing.T) {
	t.Parallel()
	tracker := NewTracker(nil, "annex", nil)
	err := tracker.apply([]*clientv3.Event{
		{Type: clientv3.EventTypePut, Kv: &mvccpb.KeyValue{Key: []byte("/annex/configmaps/a"), CreateRevision: 5, ModRevision: 5, Value: []byte("v")}},
		{Type: clientv3.EventTypePut, Kv: &mvccpb.KeyValue{Key: []byte("/annex/configmaps/b"), CreateRevision: 2, ModRevision: 5, Value: []byte("v")}},
	}, 5)
	if !errors.Is(err, errReload) {
		t.Errorf("got %v", err)
	}
	if got := tracker.Total(); got != (Usage{}) {
		t.Errorf("counted %+v", got)
	}
}

func TestResourceOfKey(t *testing.T) {
	t.Parallel()
	tests := map[string]schema.GroupResource{
		"configmaps/default/a":              configMaps,
		"namespaces/default":                {Resource: "namespaces"},
		"namespaces/with.dot":               {Resource: "namespaces"},
		"example.com/widgets/default/a":     widgets,
		"example.com/widgets/a":             widgets,
		"example.com/widgets":               widgets,
		"apiextensions.k8s.io/x/a.b.c/d":    {Group: "apiextensions.k8s.io", Resource: "x"},
		"alone":                             {Resource: "alone"},
		"":                                  {},
		"example.com/":                      {Group: "example.com"},
		"a.b":                               {Resource: "a.b"},
		"configmaps/name.with.dots/another": configMaps,
	}
	for key, want := range tests {
		prefix, groupLength := resourcePrefix([]byte(key))
		got := toResource(string(prefix), groupLength)
		if got != want {
			t.Errorf("%q: got %+v, want %+v", key, got, want)
		}
		if back := toPrefix(got); back != string(prefix) {
			t.Errorf("%q: prefix %q became %q", key, prefix, back)
		}
	}
}
