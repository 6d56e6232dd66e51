// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/storage/embeddedetcd/etcdtest"
)

// watchFrom watches as an informer does: on from the last event when a watch fails,
// but for a version that is too old. Version 0 begins with what there is.
func (s *subject) watchFrom(t *testing.T, version string, events int) []string {
	t.Helper()
	options := storage.ListOptions{Recursive: true, Predicate: storage.Everything, ResourceVersion: version}
	deadline := time.After(patience)
	var got []string
	for {
		watched, err := s.Watch(t.Context(), resourcePrefix, options)
		if apierrors.IsTooManyRequests(err) { // the cache is being filled
			select {
			case <-time.After(5 * time.Millisecond):
				continue
			case <-deadline:
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		for failed := false; !failed; {
			var event watch.Event
			ok := true
			select {
			case event, ok = <-watched.ResultChan():
			case <-deadline:
				t.Fatalf("got %q, want %d events", got, events)
			}
			if !ok {
				break // the cache was filled again
			}
			object, err := meta.Accessor(event.Object)
			switch failure := apierrors.FromObject(event.Object); {
			case event.Type == watch.Error && apierrors.IsResourceExpired(failure):
				watched.Stop()
				return append(got, "EXPIRED")
			case event.Type == watch.Error:
				failed = true
			case err != nil:
				t.Fatalf("event %s: %v", event.Type, err)
			case event.Type == watch.Bookmark:
			default:
				got = append(got, fmt.Sprintf("%s %s", event.Type, object.GetName()))
				if version != "0" {
					options.ResourceVersion = object.GetResourceVersion()
				}
			}
			if len(got) == events {
				watched.Stop()
				return got
			}
		}
		watched.Stop()
		if version == "0" {
			got = nil
		}
	}
}

// version is that of all there is now.
func (s *subject) version(t *testing.T) string {
	t.Helper()
	version := ""
	ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{Verb: "list"})
	s.wait(t, func() string {
		list := &unstructured.UnstructuredList{}
		if err := s.GetList(ctx, resourcePrefix, storage.ListOptions{Recursive: true, Predicate: storage.Everything}, list); err != nil {
			return err.Error()
		}
		version = list.GetResourceVersion()
		return ""
	})
	return version
}

// TestWatchGoesOn damages an object while it is watched.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	forBoth(t, func(t *testing.T, s *subject) {
		s.create(t, "a", "b", "c")
		version := s.version(t)
		s.put(t, "b", "damaged")
		s.create(t, "d")
		s.put(t, "b", `a:{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"b","namespace":"default"}}`)
		s.put(t, "b", "damaged")
		s.create(t, "e")
		got := s.watchFrom(t, version, 100)
		if diff := cmp.Diff([]string{"EXPIRED"}, got[len(got)-1:]); diff != "" {
			t.Errorf("of one that was damaged twice it watched %q, want that it lists again", got)
		}

		version = s.version(t)
		s.create(t, "f")
		s.put(t, "c", "damaged")
		s.create(t, "g")
		if diff := cmp.Diff([]string{"ADDED f", "DELETED c", "ADDED g"}, s.watchFrom(t, version, 3)); diff != "" {
			t.Errorf("watched (-want +got):\n%s", diff)
		}
		s.waitReported(t, "default/b", "default/c")
	})
}

// TestWatchThatLists meets what was damaged before.
func TestWatchThatLists(t *testing.T) {
	t.Parallel()
	s := newSubject(t, false)
	s.create(t, "a", "b", "c")
	s.put(t, "b", "damaged")
	if diff := cmp.Diff([]string{"ADDED a", "ADDED c"}, s.watchFrom(t, "0", 2)); diff != "" {
		t.Errorf("watched (-want +got):\n%s", diff)
	}
	s.waitReported(t, "default/b")
}

// TestWatchThatEndsAList has all objects looked at by a watch that begins with them, as
// watch caches are filled.
func TestWatchThatEndsAList(t *testing.T) {
	t.Parallel()
	s := newSubject(t, false)
	s.create(t, "a")
	predicate := storage.Everything
	predicate.AllowWatchBookmarks = true
	watched, err := s.Watch(t.Context(), resourcePrefix, storage.ListOptions{
		Recursive: true, Predicate: predicate, SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	for _, want := range []watch.EventType{watch.Added, watch.Bookmark} {
		select {
		case event := <-watched.ResultChan():
			if event.Type != want {
				t.Fatalf("watched %s %v, want %s", event.Type, event.Object, want)
			}
		case <-time.After(patience):
			t.Fatalf("no event %s", want)
		}
	}
	if !s.registry.Listed(widgets) {
		t.Error("all objects were sent, and that is not known")
	}
}

// forgetful is an etcd that does not send what was there before.
type forgetful struct{ clientv3.Watcher }

func (f forgetful) Watch(ctx context.Context, key string, options ...clientv3.OpOption) clientv3.WatchChan {
	answers := f.Watcher.Watch(ctx, key, options...)
	forgotten := make(chan clientv3.WatchResponse)
	go func() {
		defer close(forgotten)
		for answer := range answers {
			for _, event := range answer.Events {
				event.PrevKv = nil
			}
			select {
			case forgotten <- answer:
			case <-ctx.Done():
			}
		}
	}()
	return forgotten
}

// TestWatchThatIsBeingMade has etcd begin to send events before it has noted that the
// watch wants to know what was before.
func TestWatchThatIsBeingMade(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, nil).Client()
	q := New(Config{Prefix: "/things/", KV: etcd})
	t.Cleanup(q.Close)
	for _, value := range []string{"1", "2", "3"} {
		if _, err := etcd.Put(t.Context(), "/things/a", value); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := etcd.Delete(t.Context(), "/things/a"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	events := q.Watcher(forgetful{etcd}).Watch(ctx, "/things/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(1))
	var got []string
	for answer := range events {
		for _, event := range answer.Events {
			before := "nothing"
			if event.PrevKv != nil {
				before = string(event.PrevKv.Value)
			}
			got = append(got, fmt.Sprintf("%s %s after %s", event.Type, event.Kv.Value, before))
		}
		if len(got) == 4 {
			break
		}
	}
	if diff := cmp.Diff([]string{"PUT 1 after nothing", "PUT 2 after 1", "PUT 3 after 2", "DELETE  after 3"}, got); diff != "" {
		t.Errorf("watched (-want +got):\n%s", diff)
	}
}
