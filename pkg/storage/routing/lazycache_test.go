// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	etcdrpc "go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	etcdfeature "k8s.io/apiserver/pkg/storage/feature"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/layer/corruption"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// lazyFixture is a watch cache of widgets over a real etcd.
type lazyFixture struct {
	*lazyCache
	// fill lets the cache be filled.
	fill func()
	etcd clientv3.KV

	source     *source
	unreadable *corruption.Registry
	objects    atomic.Int64
	bytes      int64
	closed     chan struct{}
	// another returns a second cache of the objects, as another version has.
	another func() *lazyCache
}

// source is etcd as the cache reads it.
type source struct {
	storage.Interface
	// failing is the error of reads and watches, if any. unconnected makes watches fail to connect.
	failing     atomic.Pointer[error]
	unconnected atomic.Bool
	// onRead, if set, is called before each read of etcd's revision. deliver, if set, is called with the revision
	// of each event before the event is delivered. An error of deliver is delivered instead.
	onRead  func()
	deliver func(revision uint64) error
}

// GetCurrentResourceVersion implements storage.Interface.
func (s *source) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	if s.onRead != nil {
		s.onRead()
	}
	return s.Interface.GetCurrentResourceVersion(ctx)
}

// GetList implements storage.Interface.
func (s *source) GetList(ctx context.Context, key string, options storage.ListOptions, list runtime.Object) error {
	if err := s.failing.Load(); err != nil {
		return *err
	}
	return s.Interface.GetList(ctx, key, options, list)
}

// Watch implements storage.Interface.
func (s *source) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	if s.unconnected.Load() {
		return nil, syscall.ECONNREFUSED
	}
	if err := s.failing.Load(); err != nil {
		failed := watch.NewFakeWithChanSize(1, false)
		failed.Action(watchcache.ErrorEvent(*err).Type, watchcache.ErrorEvent(*err).Object)
		return failed, nil
	}
	events, err := s.Interface.Watch(ctx, key, options)
	if err != nil || s.deliver == nil {
		return events, err
	}
	return watch.Filter(events, func(event watch.Event) (watch.Event, bool) {
		if revision, err := versioner.ObjectResourceVersion(event.Object); err == nil {
			if err := s.deliver(revision); err != nil {
				return watchcache.ErrorEvent(err), true
			}
		}
		return event, true
	}), nil
}

// newLazyFixture returns a cache that is not filled before the test allows it. It is of a resource
// that is not small.
func newLazyFixture(t *testing.T) *lazyFixture {
	t.Helper()
	store := startStore(t, "two")
	etcdfeature.DefaultFeatureSupportChecker.CheckClient(t.Context(), store.client, storage.RequestWatchProgress)
	w := newFixture(t, store)
	w.place(t, placedOn("two", "first"))
	config := w.widgetStorage(t).(*lazyStorage).config
	config.cached = false
	etcd, err := config.build(t.Context(), store, location{})
	expect.NoError(t, err)
	t.Cleanup(etcd.destroy)

	config.fills = make(fills, 1)
	fill, err := config.fills.acquire(t.Context())
	expect.NoError(t, err)
	f := &lazyFixture{
		fill: fill, etcd: store.client.KV, closed: make(chan struct{}), source: &source{Interface: etcd}, unreadable: corruption.NewRegistry(),
	}
	f.objects.Store(smallObjects + 1)
	newCache := func(config storageConfig, from storage.Interface) *lazyCache {
		lazy := newLazyCache(from, lazyCacheConfig{
			usage:  func() (objects, bytes int64, known bool) { return f.objects.Load(), f.bytes, true },
			closed: f.closed,
		})
		detector := corruption.New(corruption.Config{Resource: widgets, New: config.newFunc, Registry: f.unreadable})
		lazy.config.create = func(since []uint64, _ hostingv1alpha1.Cache, dropped <-chan struct{}) (*filledCache, error) {
			return config.createCache(from, detector, nil, lazy, since, dropped)
		}
		t.Cleanup(lazy.destroy)
		return lazy
	}
	f.lazyCache = newCache(config, f.source)
	f.another = func() *lazyCache {
		of, err := config.build(t.Context(), store, location{})
		expect.NoError(t, err)
		t.Cleanup(of.destroy)
		free := config
		free.fills = make(fills, 1)
		return newCache(free, of)
	}
	return f
}

const widgetsKey = "/example.com/widgets/"

// create creates a widget and returns its revision.
func (f *lazyFixture) create(t *testing.T, name string) string {
	t.Helper()
	created := &example.Pod{}
	pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	expect.NoError(t, f.Create(t.Context(), widgetsKey+"ns/"+name, pod, created, 0))
	return created.ResourceVersion
}

func (f *lazyFixture) list(ctx context.Context, options storage.ListOptions) (*example.PodList, error) {
	options.Recursive = true
	if options.Predicate.Label == nil {
		options.Predicate.Label = storage.Everything.Label
	}
	options.Predicate.Field = storage.Everything.Field
	options.Predicate.GetAttrs = podAttrs
	list := &example.PodList{}
	return list, f.GetList(ctx, widgetsKey, options, list)
}

func (f *lazyFixture) watch(t *testing.T, resourceVersion string, initialEvents bool) watch.Interface {
	t.Helper()
	options := storage.ListOptions{ResourceVersion: resourceVersion, Predicate: storage.Everything, Recursive: true}
	if initialEvents {
		options.SendInitialEvents, options.ResourceVersionMatch = &initialEvents, metav1.ResourceVersionMatchNotOlderThan
		options.Predicate.AllowWatchBookmarks = true
	}
	events, err := f.Watch(t.Context(), widgetsKey, options)
	expect.NoError(t, err)
	t.Cleanup(events.Stop)
	return events
}

// next returns the type of the next event and the name of its object.
func next(t *testing.T, events watch.Interface) string {
	t.Helper()
	select {
	case event, open := <-events.ResultChan():
		switch object := event.Object.(type) {
		case *metav1.Status:
			return fmt.Sprint(event.Type, " ", object.Reason)
		case metav1.Object:
			return fmt.Sprint(event.Type, " ", object.GetName())
		}
		return fmt.Sprintf("%v, open: %v", event, open)
	case <-time.After(time.Minute):
		return "no event"
	}
}

func expectNone(t *testing.T, events watch.Interface) {
	t.Helper()
	select {
	case event := <-events.ResultChan():
		t.Errorf("got %v, want no event yet", event)
	default:
	}
}

// TestCacheIsCreatedWhenNeeded creates no cache for reads of a resource without objects.
func TestCacheIsCreatedWhenNeeded(t *testing.T) {
	t.Parallel()
	list := func(options storage.ListOptions) func(*testing.T, *lazyFixture) {
		return func(t *testing.T, f *lazyFixture) {
			_, err := f.list(t.Context(), options)
			expect.NoError(t, err)
		}
	}
	get := func(resourceVersion string) func(*testing.T, *lazyFixture) {
		return func(t *testing.T, f *lazyFixture) {
			options := storage.GetOptions{ResourceVersion: resourceVersion, IgnoreNotFound: true}
			expect.NoError(t, f.Get(t.Context(), widgetKey, options, &example.Pod{}))
		}
	}
	for name, tc := range map[string]struct {
		empty bool
		use   func(*testing.T, *lazyFixture)
		want  bool
	}{
		"a list of no objects":             {empty: true, use: list(storage.ListOptions{})},
		"a list of no objects, of any age": {empty: true, use: list(storage.ListOptions{ResourceVersion: "0"})},
		"a read of no objects":             {empty: true, use: get("0")},
		"a list":                           {use: list(storage.ListOptions{}), want: true},
		"a read":                           {use: get("0"), want: true},
		"a consistent read":                {use: get("")},
		"a write":                          {use: func(t *testing.T, f *lazyFixture) { f.create(t, "a") }},
		"a watch of no objects":            {empty: true, use: func(t *testing.T, f *lazyFixture) { f.watch(t, "", true) }, want: true},
		"a watch of no objects, from 1":    {empty: true, use: func(t *testing.T, f *lazyFixture) { f.watch(t, "1", false) }, want: true},
		"statistics, which upstream asks for": {use: func(t *testing.T, f *lazyFixture) {
			_, err := f.Stats(t.Context())
			expect.NoError(t, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newLazyFixture(t)
			f.fill()
			if tc.empty {
				f.objects.Store(0)
			}
			tc.use(t, f)
			if created := f.cache.Load() != nil; created != tc.want {
				t.Errorf("the cache was created: %t, want %t", created, tc.want)
			}
		})
	}
}

// TestListsBeforeFilled lists while the cache cannot be filled: pages and small resources are
// read from etcd, the others wait.
func TestListsBeforeFilled(t *testing.T) {
	t.Parallel()
	limit := storage.SelectionPredicate{Limit: 10}
	selector := storage.SelectionPredicate{Label: labels.SelectorFromSet(labels.Set{"a": "b"})}
	for name, tc := range map[string]struct {
		options         storage.ListOptions
		small, wantWait bool
	}{
		"all":                {wantWait: true},
		"all, of any age":    {options: storage.ListOptions{ResourceVersion: "0"}, wantWait: true},
		"those with a label": {options: storage.ListOptions{Predicate: selector}, wantWait: true},
		"a page":             {options: storage.ListOptions{Predicate: limit}},
		"a page, of any age": {options: storage.ListOptions{Predicate: limit, ResourceVersion: "0"}},
		"few":                {small: true},
		"few, of any age":    {options: storage.ListOptions{ResourceVersion: "0"}, small: true},
		"few, with a label":  {options: storage.ListOptions{Predicate: selector}, small: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newLazyFixture(t)
			f.create(t, "a")
			f.watch(t, "0", false) // creates the cache
			if tc.small {
				f.objects.Store(1)
			}
			listed := make(chan error, 1)
			go func() {
				_, err := f.list(t.Context(), tc.options)
				listed <- err
			}()
			if tc.wantWait {
				poll.Until(t, "the list waits", func() string {
					if len(f.lists) == 1 {
						return ""
					}
					return "no list waits"
				})
				f.fill()
			}
			expect.NoError(t, <-listed)
		})
	}
}

// TestListsThatWaitAreBounded refuses lists when others occupy the seats.
func TestListsThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	f := newLazyFixture(t)
	for range waitingLists {
		f.lists <- struct{}{}
	}
	if _, err := f.list(t.Context(), storage.ListOptions{ResourceVersion: "0"}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("error %v, want 429", err)
	}
}

// TestWatchesBeforeFilled opens watches before the cache is filled. They miss nothing.
func TestWatchesBeforeFilled(t *testing.T) {
	t.Parallel()
	f := newLazyFixture(t)
	first := f.create(t, "a")
	f.create(t, "b")
	// The cache has the history since the revision of the watch that creates it.
	since := f.watch(t, first, false)
	initial := f.watch(t, "", true)
	stopped := f.watch(t, first, false)
	stopped.Stop()
	expectNone(t, since)
	expectNone(t, initial)
	f.fill()
	for _, want := range []string{"ADDED b", "ADDED c"} {
		if want == "ADDED c" {
			f.create(t, "c")
		}
		if got := next(t, since); got != want {
			t.Errorf("the watch from %s has %s, want %s", first, got, want)
		}
	}
	for _, want := range []string{"ADDED a", "ADDED b"} {
		if got := next(t, initial); got != want {
			t.Errorf("the watch with initial events has %s, want %s", got, want)
		}
	}
	if event, open := <-stopped.ResultChan(); open {
		t.Errorf("the stopped watch has %v", event)
	}
}

// TestWatchesFromBefore watches from revisions before the cache was created, the last first.
func TestWatchesFromBefore(t *testing.T) {
	t.Parallel()
	f := newLazyFixture(t)
	f.fill()
	f.objects.Store(0)
	first, err := f.list(t.Context(), storage.ListOptions{})
	expect.NoError(t, err)
	f.create(t, "a")
	second, err := f.list(t.Context(), storage.ListOptions{})
	expect.NoError(t, err)
	f.create(t, "b")
	if got := next(t, f.watch(t, second.ResourceVersion, false)); got != "ADDED b" {
		t.Errorf("a watch from the second list has %s, want ADDED b", got)
	}
	if got := next(t, f.watch(t, first.ResourceVersion, false)); got != "ADDED a" {
		t.Errorf("a watch from the first list has %s, want ADDED a", got)
	}
}

// TestWithoutHistory creates the cache for a watch from revisions that etcd does not have.
func TestWithoutHistory(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ from, want string }{
		"a future revision":    {"1000000", ""},
		"a compacted revision": {"2", "ERROR Expired"},
		"any revision":         {"0", "ADDED a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newLazyFixture(t)
			f.fill()
			f.create(t, "a")
			last, err := strconv.ParseInt(f.create(t, "b"), 10, 64)
			expect.NoError(t, err)
			_, err = f.etcd.Compact(t.Context(), last)
			expect.NoError(t, err)
			events := f.watch(t, tc.from, false)
			if tc.want == "" {
				expectNone(t, events)
			} else if got := next(t, events); got != tc.want {
				t.Errorf("the watch has %s, want %s", got, tc.want)
			}
			if list, err := f.list(t.Context(), storage.ListOptions{}); err != nil || len(list.Items) != 2 {
				t.Errorf("%d objects (%v), want 2", len(list.Items), err)
			}
		})
	}
}

// TestInvalidVersion checks that an unfilled watch cache returns its own error, because clients get it with a
// different code than the error of etcd's storage. Without a cache they get etcd's error.
func TestInvalidVersion(t *testing.T) {
	t.Parallel()
	for form, ofCache := range map[hostingv1alpha1.Cache]bool{hostingv1alpha1.CachePlain: true, hostingv1alpha1.CacheNone: false} {
		f := newLazyFixture(t)
		f.objects.Store(0)
		expect.NoError(t, f.Apply(t.Context(), form))
		err := f.Get(t.Context(), "/example.com/widgets/default/any", storage.GetOptions{ResourceVersion: "x"}, &example.Pod{})
		if invalid := new(storage.InvalidError); errors.As(err, invalid) != ofCache {
			t.Errorf("%s: the error is a %T: %v", form, err, err)
		}
	}
}

// TestCacheThatCannotBeFilled answers what waits for a cache that is destroyed, or whose Store no
// longer serves the resource: watches end, so that clients open them again, and etcd decides on lists.
func TestCacheThatCannotBeFilled(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*lazyFixture){
		"destroyed": func(f *lazyFixture) { f.destroy() },
		"closed":    func(f *lazyFixture) { close(f.closed) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newLazyFixture(t)
			f.create(t, "one")
			watches := f.watch(t, "", true)
			listed := make(chan error, 1)
			go func() {
				list, err := f.list(t.Context(), storage.ListOptions{})
				if err == nil && len(list.Items) != 1 {
					err = fmt.Errorf("%d objects, want 1", len(list.Items))
				}
				listed <- err
			}()
			poll.UntilDone(t, "the list waits", func() (bool, string) { return len(f.lists) == 1, fmt.Sprint(len(f.lists), " lists wait") })
			expectNone(t, watches)
			end(f)
			expect.NoError(t, <-listed)
			if got := next(t, watches); got != "{ <nil>}, open: false" {
				t.Errorf("the watch: %s, want that it ends", got)
			}
		})
	}
}

// TestFillFails tells whatever waits why the cache cannot be filled, soon and until it can be again.
func TestFillFails(t *testing.T) {
	t.Parallel()
	plain := errors.New("the webhook is gone")
	damaged := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonStoreReadError, Code: 500, Message: "a cannot be read"}}
	for name, tc := range map[string]struct {
		err error
		// late is set if the cache can only read the history, and unconnected if it cannot connect.
		late, unconnected bool
		// want is the reason and the message, and reported what the registry has.
		want, reported string
	}{
		"an error":             {err: plain, want: "TooManyRequests widgets.example.com cannot be read: the webhook is gone", reported: "the webhook is gone"},
		"an error of etcd":     {err: etcdrpc.ErrNoLeader, want: "TooManyRequests widgets.example.com cannot be read: etcdserver: no leader", reported: "etcdserver: no leader"},
		"no connection":        {unconnected: true, want: "TooManyRequests widgets.example.com cannot be read: connection refused", reported: "connection refused"},
		"an error of an event": {err: plain, late: true, want: "TooManyRequests widgets.example.com cannot be read: the webhook is gone", reported: "the webhook is gone"},
		"an unreadable object": {err: damaged, want: "StorageReadError a cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newLazyFixture(t)
			var broken atomic.Bool
			broken.Store(tc.late)
			f.source.deliver = func(revision uint64) error {
				if broken.Load() && revision > 1 {
					return tc.err
				}
				return nil
			}
			f.create(t, "a")
			if f.source.unconnected.Store(tc.unconnected); tc.err != nil && !tc.late {
				f.source.failing.Store(&tc.err)
			}
			early := f.watch(t, "0", false)
			listed := make(chan error, 1)
			go func() {
				_, err := f.list(t.Context(), storage.ListOptions{ResourceVersion: "0"})
				listed <- err
			}()
			poll.UntilDone(t, "the list waits", func() (bool, string) { return len(f.lists) == 1, fmt.Sprint(len(f.lists), " lists wait") })
			expectNone(t, early)
			f.fill()
			if event := <-early.ResultChan(); event.Type != watch.Error || reasonOf(apierrors.FromObject(event.Object)) != tc.want {
				t.Errorf("the watch that waits has %v, want %s", event, tc.want)
			}
			if got := reasonOf(<-listed); got != tc.want {
				t.Errorf("the list that waits: %s, want %s", got, tc.want)
			}
			f.objects.Store(1)
			_, err := f.Watch(t.Context(), widgetsKey, storage.ListOptions{ResourceVersion: "0", Predicate: storage.Everything, Recursive: true})
			if got := reasonOf(err); got != tc.want {
				t.Errorf("a watch of few objects: %s, want %s", got, tc.want)
			}
			if got := withoutKind(f.unreadable.Failure(widgets)); got != tc.reported {
				t.Errorf("reported: %q, want %q", got, tc.reported)
			}
			broken.Store(false)
			f.source.unconnected.Store(false)
			f.source.failing.Store(nil)
			poll.UntilDone(t, "the cache is filled", func() (bool, string) {
				return f.ReadinessCheck() == nil && f.unreadable.AllRead(widgets), f.unreadable.Failure(widgets)
			})
			if got := f.unreadable.Failure(widgets); got != "" {
				t.Errorf("reported after it was filled: %q", got)
			}
			if got := next(t, f.watch(t, "0", false)); got != "ADDED a" {
				t.Errorf("a watch has %s, want ADDED a", got)
			}
		})
	}
}

// withoutKind removes what upstream adds to an error that a watch has.
func withoutKind(message string) string {
	return strings.ReplaceAll(message, "Internal error occurred: ", "")
}

// reasonOf returns the reason and the message of an error that tells clients when to try again.
func reasonOf(err error) string {
	if _, retries := apierrors.SuggestsClientDelay(err); !retries && apierrors.IsTooManyRequests(err) {
		return "no Retry-After"
	}
	return withoutKind(fmt.Sprintf("%s %v", apierrors.ReasonForError(err), err))
}

// TestCacheIsNotOlderThanOthers writes while a cache is filled. It is not read before it has what another cache of the
// resource has answered until then.
func TestCacheIsNotOlderThanOthers(t *testing.T) {
	t.Parallel()
	f := newLazyFixture(t)
	created, err := strconv.ParseUint(f.create(t, "a"), 10, 64)
	expect.NoError(t, err)
	read, late := make(chan struct{}), make(chan struct{})
	f.source.deliver = func(revision uint64) error {
		if revision > created {
			<-late
		}
		return nil
	}
	f.watch(t, "0", false) // creates the cache
	f.source.onRead = sync.OnceFunc(func() { close(read) })
	f.create(t, "b")
	other := f.another()
	newest := func(of *lazyCache) uint64 {
		list := &example.PodList{}
		options := storage.ListOptions{ResourceVersion: "0", Recursive: true, Predicate: storage.Everything}
		options.Predicate.Limit = 10
		expect.NoError(t, of.GetList(t.Context(), widgetsKey, options, list))
		revision, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
		expect.NoError(t, err)
		return revision
	}
	answered := newest(other)
	f.fill()
	poll.UntilDone(t, "the cache is filled with what there was when it was created", func() (bool, string) {
		return isClosed(read) || f.ReadinessCheck() == nil, "etcd's revision was not read since"
	})
	if got := newest(f.lazyCache); got < answered {
		t.Errorf("a list before it is current has %d, another cache had answered %d", got, answered)
	}
	close(late)
	poll.UntilDone(t, "the cache is current", func() (bool, string) { return f.ReadinessCheck() == nil, "it is not" })
	if got := newest(f.lazyCache); got < answered {
		t.Errorf("a list has %d, another cache had answered %d", got, answered)
	}
}
