// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"

	"github.com/annex-dev/annex/pkg/storage/layer/revision"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestWatchFromTheFuture: a watch from a version that etcd does not have expires, and one from a version
// that only another replica has seen waits.
func TestWatchFromTheFuture(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cached bool
		offset int64
	}{
		"with a watch cache":        {cached: true},
		"without one":               {},
		"moved, with a watch cache": {cached: true, offset: 1_000_000},
		"moved, without one":        {offset: 1_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := startStore(t, "one")
			expect.NoError(t, revision.Save(t.Context(), one.client.KV, one.Prefix(), widgets, test.offset))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			newReplica := func() storage.Interface {
				w := newFixture(t, one)
				w.config.Cached = func(schema.GroupResource) bool { return test.cached }
				w.place(t, placedOn("one", "first"))
				return w.widgetStorage(t)
			}
			s, other := newReplica(), newReplica()
			open := func(from uint64, all *bool) watch.Interface {
				options := storage.ListOptions{ResourceVersion: strconv.FormatUint(from, 10), Predicate: storage.Everything, Recursive: true, SendInitialEvents: all}
				options.Predicate.AllowWatchBookmarks = true
				events, err := s.Watch(ctx, "/example.com/widgets/", options)
				expect.NoError(t, err)
				t.Cleanup(events.Stop)
				return events
			}
			expect.NoError(t, create(ctx, s, widgetKey))
			if event := <-open(0, nil).ResultChan(); event.Type != watch.Added {
				t.Fatalf("the first event is %v", event)
			}
			// Only the other replica sees them. The watch from the first is open before the second.
			expect.NoError(t, create(ctx, other, widgetKey+"1"))
			now, err := other.GetCurrentResourceVersion(ctx)
			expect.NoError(t, err)
			waits := open(now, nil)
			expect.NoError(t, create(ctx, other, widgetKey+"2"))
			event := <-waits.ResultChan()
			if object, err := meta.Accessor(event.Object); err != nil || event.Type != watch.Added || object.GetName() != "a2" {
				t.Errorf("a watch from the latest version has %v first, want that a2 was added", event)
			}
			for _, ahead := range []uint64{2, 1_000_000, 1 << 62} {
				for _, all := range []*bool{nil, new(false)} {
					event, more := <-open(now+ahead, all).ResultChan()
					if !more || event.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
						t.Errorf("a watch from %d ahead has %v, want that it is expired", ahead, event)
					}
				}
			}
			exactly := func(version uint64) error {
				options := storage.ListOptions{
					ResourceVersion: strconv.FormatUint(version, 10), ResourceVersionMatch: metav1.ResourceVersionMatchExact, Predicate: storage.Everything, Recursive: true,
				}
				return s.GetList(ctx, "/example.com/widgets/", options, &example.PodList{})
			}
			if err := exactly(now + 1_000_000); !storage.IsTooLargeResourceVersion(err) {
				t.Errorf("a list at a later version: %v, want that it is too large", err)
			}
			// Of the moved ones, another server has the first, and this etcd has the next from before it was opened.
			for before := uint64(max(test.offset-1, 0)); test.offset > 0 && before < uint64(test.offset)+2; before++ {
				if err := exactly(before); !apierrors.IsResourceExpired(err) {
					t.Errorf("a list at version %d from before the opening: %v, want that it is expired", before, err)
				}
			}
			event = <-open(now+1_000_000, new(true)).ResultChan()
			if event.Type != watch.Error || apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
				t.Errorf("a watch with all objects from the future has %v, want upstream's error", event)
			}
		})
	}
}

// TestWatchWithoutEtcd: the watch cache serves watches while etcd is unavailable, except watches that require
// a request to etcd.
func TestWatchWithoutEtcd(t *testing.T) {
	t.Parallel()
	one := startStore(t, "one")
	_, s := serveWidgets(t, placedOn("one", "first"), one)
	expect.NoError(t, create(t.Context(), s, widgetKey))
	waitCached(t, s, 1)
	var pod example.Pod
	expect.NoError(t, s.Get(t.Context(), widgetKey, storage.GetOptions{}, &pod))
	one.set(errDown)
	for version, refused := range map[string]bool{"0": false, pod.ResourceVersion: false, "1000000": true} {
		events, err := s.Watch(t.Context(), "/example.com/widgets/", storage.ListOptions{ResourceVersion: version, Predicate: storage.Everything, Recursive: true})
		if (err != nil) != refused || refused && !apierrors.IsServiceUnavailable(err) {
			t.Errorf("a watch from %s: %v", version, err)
		}
		if err == nil {
			events.Stop()
		}
	}
}
