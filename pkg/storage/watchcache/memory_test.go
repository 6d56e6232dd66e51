// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"weak"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	encryptidentity "k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/storage/layer/compression"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const widgetsPrefix = "/example.com/widgets/"

func widgetKey(obj apiruntime.Object) (string, error) {
	return path.Join(widgetsPrefix, obj.(interface{ GetNamespace() string }).GetNamespace(), obj.(interface{ GetName() string }).GetName()), nil
}

// cachedWidgets is a watch cache of widgets over an etcd.
type cachedWidgets struct {
	etcd, cached storage.Interface
	// upstream is cached without Lists.
	upstream storage.Interface
	memory   *Memory
	source   *breakableWatch
	changes  atomic.Int64
	stop     func()
}

func newCachedWidgets(t testing.TB) *cachedWidgets { return newCached(t, widgets) }

func newCached(t testing.TB, resource *Resource) *cachedWidgets {
	t.Helper()
	client := etcdtest.StartClient(t)
	codec := resource.Form(unstructured.UnstructuredJSONScheme).Codec
	versioner := storage.APIObjectVersioner{}
	group := schema.GroupResource{Group: resource.Kind.Group, Resource: "widgets"}
	etcd, err := etcd3.New(client, nil, codec, resource.NewObject, resource.NewList, "/test", widgetsPrefix, group,
		encryptidentity.NewEncryptCheckTransformer(), etcd3.NewDefaultLeaseManagerConfig(), etcd3.NewDefaultDecoder(codec, versioner), versioner)
	expect.NoError(t, err)
	w := &cachedWidgets{etcd: etcd, source: &breakableWatch{Interface: etcd}}
	w.memory = NewMemory(resource, widgetKey, compression.Generic, func(change int64) { w.changes.Add(change) })
	watchCache, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage: w.memory.Source(w.source, func(error) {}), Versioner: versioner, GroupResource: group, EventsHistoryWindow: cacher.DefaultEventFreshDuration,
		ResourcePrefix: widgetsPrefix, KeyFunc: w.memory.Key, NewFunc: resource.NewObject, NewListFunc: resource.NewList,
		GetAttrsFunc: CacheAttrs, Indexers: w.memory.Indexers(), Codec: codec,
	})
	expect.NoError(t, err)
	delegator := cacher.NewCacheDelegator(watchCache, etcd)
	w.upstream, w.cached = delegator, w.memory.Lists(delegator, watchCache, group, widgetsPrefix)
	w.stop = sync.OnceFunc(func() {
		delegator.Stop()
		watchCache.Stop()
		w.memory.Close()
		etcd.Close()
	})
	t.Cleanup(w.stop)
	poll.UntilNoError(t, "the watch cache is ready", delegator.ReadinessCheck)
	return w
}

// list returns all widgets that the watch cache has, not older than etcd's.
func (w *cachedWidgets) list(t testing.TB) []Object {
	t.Helper()
	var list List
	poll.UntilNoError(t, "widgets can be listed", func() error {
		list = List{}
		return w.cached.GetList(t.Context(), widgetsPrefix, storage.ListOptions{Predicate: storage.Everything, Recursive: true}, &list)
	})
	return list.Items
}

// checkUsage compares the usage with what a walk through the watch cache counts.
func (w *cachedWidgets) checkUsage(t testing.TB, when string) {
	t.Helper()
	poll.UntilNoError(t, when, func() error {
		want := Usage{}
		for _, object := range w.list(t) {
			want.Objects++
			want.Bytes += object.size()
		}
		got := w.memory.Usage()
		if got.Objects != want.Objects || got.Bytes != want.Bytes {
			return fmt.Errorf("the usage is %+v, want %+v", got, want)
		}
		if sum := w.changes.Load(); sum != got.Total() {
			return fmt.Errorf("the changes add up to %d, the usage is %+v", sum, got)
		}
		return nil
	})
}

func newWidgetText(i int, content string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": fmt.Sprintf("widget-%04d", i), "namespace": fmt.Sprintf("ns-%d", i%3), "labels": map[string]any{"part": fmt.Sprint(i % 4)}},
		"spec":     map[string]any{"content": content},
	}}
}

func (w *cachedWidgets) create(t testing.TB, object *unstructured.Unstructured) {
	t.Helper()
	key, _ := widgetKey(object)
	err := w.etcd.Create(t.Context(), key, object, &Object{}, 0)
	if !storage.IsExist(err) {
		expect.NoError(t, err)
	}
}

// update replaces the content of a widget.
func (w *cachedWidgets) update(t testing.TB, object *unstructured.Unstructured) {
	t.Helper()
	key, _ := widgetKey(object)
	err := w.etcd.GuaranteedUpdate(t.Context(), key, &Object{}, false, nil, func(current apiruntime.Object, _ storage.ResponseMeta) (apiruntime.Object, *uint64, error) {
		decoded, err := current.(*Object).Decode()
		if err != nil {
			return nil, nil, err
		}
		decoded.Object["spec"] = object.Object["spec"]
		changed, err := widgets.encode(decoded, 0)
		return &Object{changed}, nil, err
	}, nil)
	if !storage.IsNotFound(err) {
		expect.NoError(t, err)
	}
}

func (w *cachedWidgets) delete(t testing.TB, object *unstructured.Unstructured) {
	t.Helper()
	key, _ := widgetKey(object)
	err := w.etcd.Delete(t.Context(), key, &Object{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
	if !storage.IsNotFound(err) {
		expect.NoError(t, err)
	}
}

// TestCacheUsage compares the accounting with a recount after random writes, while objects are
// compressed and decompressed, and after the watch cache has lost its watch.
func TestCacheUsage(t *testing.T) {
	t.Parallel()
	w := newCachedWidgets(t)
	random := rand.New(rand.NewPCG(rand.Uint64(), 0))
	content := func() string { return strings.Repeat(fmt.Sprintf("content %d ", random.IntN(100)), 1+random.IntN(200)) }
	for round := range 12 {
		for range 60 {
			object := newWidgetText(random.IntN(80), content())
			switch random.IntN(4) {
			case 0, 1:
				w.create(t, object)
			case 2:
				w.update(t, object)
			case 3:
				w.delete(t, object)
			}
		}
		w.checkUsage(t, fmt.Sprintf("round %d: the usage is that of the objects", round))
		compressed := round%2 == 0
		expect.NoError(t, w.memory.SetCompressed(t.Context(), compressed, w.cached, widgetsPrefix))
		w.checkUsage(t, fmt.Sprintf("round %d: the usage is that of the converted objects", round))
		w.checkTexts(t, compressed)
		if round%4 == 3 {
			w.source.breakAll()
			poll.UntilNoError(t, "the watch cache has listed again", w.cached.ReadinessCheck)
			w.checkUsage(t, "the usage is that of the objects after another list")
		}
	}
	w.stop()
	if got := w.memory.Usage(); got != (Usage{}) || w.changes.Load() != 0 {
		t.Errorf("after the end the usage is %+v, and the changes add up to %d", got, w.changes.Load())
	}
}

// checkTexts checks that objects have the wanted form, and are equal to the objects in etcd.
func (w *cachedWidgets) checkTexts(t *testing.T, compressed bool) {
	t.Helper()
	for _, object := range w.list(t) {
		if got := object.text.Load().dictionary != nil; got != compressed && object.length > 600 {
			t.Fatalf("%s is compressed: %v, want %v", object.GetName(), got, compressed)
		}
		var stored Object
		key, _ := widgetKey(&object)
		expect.NoError(t, w.etcd.Get(t.Context(), key, storage.GetOptions{}, &stored))
		want, err := stored.JSON()
		expect.NoError(t, err)
		got, err := object.JSON()
		if err != nil || string(got) != string(want) {
			t.Fatalf("the watch cache has %s, %v; want %s", got, err, want)
		}
		appended, err := object.appendJSON([]byte("before"))
		if err != nil || string(appended) != "before"+string(want) {
			t.Fatalf("appended %s, %v; want %s", appended, err, want)
		}
		if object.GetResourceVersion() != stored.GetResourceVersion() || object.GetName() != stored.GetName() || object.GetUID() != stored.GetUID() {
			t.Fatalf("the watch cache has the metadata of another object: %s", got)
		}
	}
}

// TestCacheHistory checks that the history accounts for updated and deleted objects, and is
// dropped with the watch cache's history.
func TestCacheHistory(t *testing.T) {
	t.Parallel()
	w := newCachedWidgets(t)
	const count = 10
	for i := range count {
		w.create(t, newWidgetText(i, strings.Repeat("a", 1000)))
	}
	// Sizes differ by up to a half: buffers have room to spare.
	total := func() (bytes int64) {
		for _, object := range w.list(t) {
			bytes += object.size()
		}
		return bytes
	}
	created := total()
	for i := range count {
		w.update(t, newWidgetText(i, strings.Repeat("b", 1000)))
	}
	history := func(want, uncertain int64) {
		poll.UntilNoError(t, "the history has the previous objects", func() error {
			w.list(t)
			runtime.GC()
			if got := w.memory.Usage().History; got < want-uncertain || got > want+uncertain {
				return fmt.Errorf("the history has %d bytes, want %d", got, want)
			}
			return nil
		})
	}
	history(created, 0)
	updated := total()
	for i := range count {
		w.delete(t, newWidgetText(i, ""))
	}
	history(created+2*updated, updated/2) // each event of a deletion has the object twice
	w.source.breakAll()
	history(0, 0)
}

// TestCacheIsCollected checks that the history of a Memory does not keep it, though a function of it
// has the objects.
func TestCacheIsCollected(t *testing.T) {
	t.Parallel()
	object := newWidget(t, `{"metadata":{"name":"a","namespace":"ns"}}`, "7")
	c := NewMemory(widgets, widgetKey, compression.Generic, func(int64) { runtime.KeepAlive(object) })
	for range 2 { // it is stored, and deleted
		_, err := c.index(object)
		expect.NoError(t, err)
	}
	if history := c.Usage().History; history == 0 {
		t.Fatal("the object is not in the history")
	}
	collected := weak.Make(c)
	poll.UntilDone(t, "the Memory is collected", func() (bool, string) {
		runtime.GC()
		return collected.Value() == nil, "something keeps it"
	})
}

// TestCacheFilling checks that objects count before the watch cache has read them all.
func TestCacheFilling(t *testing.T) {
	t.Parallel()
	c := NewMemory(widgets, widgetKey, compression.Generic, func(int64) {})
	var read *version
	add := func(name string) {
		text := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"namespace":"ns"},"spec":%q}`, name, strings.Repeat("x", 1000))
		expect.NoError(t, c.add(newWidget(t, text, "7"), read))
	}
	read = c.restartFilling()
	add("a")
	one := c.Usage()
	if one.Bytes < 1000 || one.Objects != 0 {
		t.Errorf("while it is filling the usage is %+v", one)
	}
	read = c.restartFilling()
	if got := c.Usage(); got != (Usage{}) {
		t.Errorf("before another attempt the usage is %+v", got)
	}
	c.Compress(true)
	add("b")
	if got := c.Usage(); got.Bytes >= one.Bytes-500 {
		t.Errorf("a compressed object takes %d, a plain one %d", got.Bytes, one.Bytes)
	}
}

// TestCacheSize compares the accounting with the heap that compression frees. It is not parallel,
// so that nothing else is on the heap.
func TestCacheSize(t *testing.T) {
	w := newCachedWidgets(t)
	w.fill(t, 1500)
	w.source.breakAll() // drops the history
	w.checkUsage(t, "all objects are cached")
	_, _, err := compression.Generic().Compress(make([]byte, 1000)) // so that encoders exist
	expect.NoError(t, err)
	plain, full := w.memory.Usage(), heap()
	poll.UntilNoError(t, "the objects are compressed", func() error {
		return w.memory.SetCompressed(t.Context(), true, w.cached, widgetsPrefix)
	})
	compressed := w.memory.Usage()
	poll.UntilNoError(t, "compression frees what is accounted for", func() error {
		freed, accounted := full-heap(), plain.Bytes-compressed.Bytes
		if freed < accounted*8/10 { // it may have freed more
			return fmt.Errorf("%d bytes per object are accounted for, the heap had %d", accounted/plain.Objects, freed/plain.Objects)
		}
		return nil
	})
}

// fill creates widgets of 2.5 kB.
func (w *cachedWidgets) fill(t testing.TB, count int) {
	t.Helper()
	var creates errgroup.Group
	creates.SetLimit(8)
	for i := range count {
		creates.Go(func() error {
			content := fmt.Sprintf("content %d ", i)
			w.create(t, newWidgetText(i, strings.Repeat(content, 2350/len(content))))
			return nil
		})
	}
	expect.NoError(t, creates.Wait())
}

// heap returns the bytes of all objects on the heap.
func heap() int64 {
	for range 3 {
		runtime.GC() // also what pools have kept
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// breakableWatch is storage whose watches can be ended, so that a watch cache has to list again.
type breakableWatch struct {
	storage.Interface

	mu      sync.Mutex
	expired bool
	watches []watch.Interface
}

// Watch implements storage.Interface.
func (s *breakableWatch) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expired && options.ResourceVersion != "" {
		s.expired = false
		return nil, apierrors.NewResourceExpired("the test ended the watch")
	}
	events, err := s.Interface.Watch(ctx, key, options)
	if err == nil {
		s.watches = append(s.watches, events)
	}
	return events, err
}

// breakAll ends all watches, and refuses the next that continues one.
func (s *breakableWatch) breakAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expired = true
	for _, events := range s.watches {
		events.Stop()
	}
	s.watches = nil
}
