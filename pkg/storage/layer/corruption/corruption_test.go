// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package corruption

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const (
	patience       = 60 * time.Second
	resourcePrefix = "/example.com/widgets"
	// interval is longer than a test.
	interval = time.Hour
)

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

// keyed is a transformer with a key. It cannot read values with another key.
type keyed struct {
	key atomic.Value
	// err makes it fail.
	err atomic.Pointer[error]
}

func (l *keyed) TransformFromStorage(_ context.Context, data []byte, _ value.Context) ([]byte, bool, error) {
	if err := l.err.Load(); err != nil {
		return nil, false, fmt.Errorf("decrypt: %w", *err)
	}
	if plain, ok := bytes.CutPrefix(data, []byte(l.key.Load().(string))); ok {
		return plain, false, nil
	}
	return nil, false, errors.New("no matching key was found")
}

func (l *keyed) TransformToStorage(_ context.Context, data []byte, _ value.Context) ([]byte, error) {
	return append([]byte(l.key.Load().(string)), data...), nil
}

// webhook is a codec with a conversion webhook, which may be down.
type webhook struct {
	runtime.Codec
	down atomic.Bool
}

func (w *webhook) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if w.down.Load() {
		return nil, nil, errors.New("conversion webhook failed")
	}
	return w.Codec.Decode(data, defaults, into)
}

// counted counts reads of ranges, and has the context of the last.
type counted struct {
	clientv3.KV
	ranges atomic.Int64
	last   atomic.Pointer[context.Context]
}

func (c *counted) Get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if op := clientv3.OpGet(key, options...); len(op.RangeBytes()) > 0 {
		c.ranges.Add(1)
		c.last.Store(&ctx)
	}
	return c.KV.Get(ctx, key, options...)
}

func (c *counted) GetStream(ctx context.Context, key string, options ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	c.ranges.Add(1)
	c.last.Store(&ctx)
	return c.KV.GetStream(ctx, key, options...)
}

// fixture is a resource in an etcd, with or without a watch cache.
type fixture struct {
	storage.Interface
	etcd     *clientv3.Client
	kv       *counted
	keyed    *keyed
	webhook  *webhook
	registry *Registry
}

func newFixture(t *testing.T, withCache bool) *fixture {
	t.Helper()
	etcd := etcdtest.Start(t, nil)
	s := &fixture{
		etcd: etcd.Client(), kv: &counted{KV: etcd.Client().KV}, keyed: &keyed{},
		webhook: &webhook{Codec: unstructured.UnstructuredJSONScheme}, registry: NewRegistry(),
	}
	s.keyed.key.Store("a:")
	newFunc := func() runtime.Object {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
	}
	newListFunc := func() runtime.Object { return &unstructured.UnstructuredList{} }
	d := New(Config{
		Resource: widgets, Prefix: "/annex", ResourcePrefix: resourcePrefix, Codec: s.webhook, New: newFunc,
		Registry: s.registry, Interval: interval,
	})
	t.Cleanup(d.Close)

	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	client := clientv3.NewCtxClient(ctx)
	client.KV, client.Watcher, client.Lease = s.kv, s.etcd.Watcher, s.etcd.Lease
	annexEtcd := &kubernetes.Client{Client: client}
	annexEtcd.Kubernetes = annexEtcd
	versioner := storage.APIObjectVersioner{}
	decoder := d.Decoder(etcd3.NewDefaultDecoder(d.Codec(), versioner))
	raw, err := etcd3.New(annexEtcd, nil, d.Codec(), newFunc, newListFunc, "/annex", resourcePrefix, widgets,
		d.Transformer(s.keyed), etcd3.NewDefaultLeaseManagerConfig(), decoder, versioner)
	expect.NoError(t, err)
	t.Cleanup(raw.Close)
	s.Interface = d.Storage(etcd3.NewStoreWithUnsafeCorruptObjectDeletion(raw, widgets))
	if !withCache {
		return s
	}
	watchCache, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage: s.Interface, Versioner: versioner, GroupResource: widgets, EventsHistoryWindow: 2 * time.Minute,
		ResourcePrefix: resourcePrefix, NewFunc: newFunc, NewListFunc: newListFunc, GetAttrsFunc: attrs, Codec: s.webhook,
		KeyFunc: func(obj runtime.Object) (string, error) { return key(obj.(*unstructured.Unstructured).GetName()), nil },
	})
	expect.NoError(t, err)
	t.Cleanup(watchCache.Stop)
	delegator := cacher.NewCacheDelegator(watchCache, s.Interface)
	t.Cleanup(delegator.Stop)
	s.Interface = d.Cached(delegator)
	return s
}

func attrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	object := obj.(*unstructured.Unstructured)
	return object.GetLabels(), fields.Set{"metadata.name": object.GetName(), "metadata.namespace": object.GetNamespace()}, nil
}

func key(name string) string { return resourcePrefix + "/default/" + name }

func encoded(name string) string {
	return `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"` + name + `","namespace":"default"}}`
}

func widget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": name, "namespace": "default"},
	}}
}

func (s *fixture) create(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		expect.NoError(t, s.Create(t.Context(), key(name), widget(name), nil, 0))
	}
}

// put writes a raw value.
func (s *fixture) put(t *testing.T, name, value string) {
	t.Helper()
	_, err := s.etcd.Put(t.Context(), "/annex"+key(name), value)
	expect.NoError(t, err)
}

func everything() storage.ListOptions {
	return storage.ListOptions{Recursive: true, Predicate: storage.Everything}
}

// list returns the names of the objects, or the error.
func (s *fixture) list(ctx context.Context) string {
	list := &unstructured.UnstructuredList{}
	if err := s.GetList(ctx, resourcePrefix, everything(), list); err != nil {
		return fmt.Sprintf("%s: %v", apierrors.ReasonForError(err), err)
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.GetName())
	}
	return strings.Join(names, ",")
}

func (s *fixture) waitListed(t *testing.T, want string) {
	t.Helper()
	poll.Until(t, "the list", func() string {
		if got := s.list(t.Context()); got != want {
			return fmt.Sprintf("listed %q, want %q", got, want)
		}
		return ""
	})
}

// unreadableMessage is the error for objects that were encrypted with another key.
func unreadableMessage(objects string) string {
	one, many := "StorageReadError: widgets.example.com "+objects+" cannot be read: data from the storage is not transformable revision=0: no matching key was found; it has to be made readable, or deleted with ",
		"StorageReadError: widgets.example.com cannot be read: "+objects+"; they have to be made readable, or deleted one by one with "
	if strings.Contains(objects, ",") {
		return many + UnsafeDelete
	}
	return one + UnsafeDelete
}

func (s *fixture) waitReported(t *testing.T, want ...string) {
	t.Helper()
	poll.Until(t, "the objects reported as unreadable", func() string {
		got := []string{}
		for _, object := range s.registry.Unreadable(widgets) {
			got = append(got, object.String())
		}
		return cmp.Diff(append([]string{}, want...), got)
	})
}

func (s *fixture) deleteUnsafely(ctx context.Context, name string) error {
	return s.Delete(ctx, key(name), &unstructured.Unstructured{}, nil, rest.ValidateAllObjectFunc, nil,
		storage.DeleteOptions{ExpectTransformOrDecodeError: true})
}

func forBoth(t *testing.T, test func(t *testing.T, s *fixture)) {
	t.Helper()
	for name, withCache := range map[string]bool{"cached": true, "not cached": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newFixture(t, withCache))
		})
	}
}

func TestDamage(t *testing.T) {
	t.Parallel()
	damages := map[string]string{
		"encrypted with another key": "b:" + encoded("b"),
		"truncated":                  `a:{"apiVersion":"example.com/v1","kind":"Wid`,
		"empty":                      ``,
		"other group":                `a:{"apiVersion":"other.example.com/v1","kind":"Widget","metadata":{"name":"b"}}`,
		"other kind":                 `a:{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"b"}}`,
		"without a name":             `a:{"apiVersion":"example.com/v1","kind":"Widget"}`,
		"without a kind":             `a:{"metadata":{"name":"b"}}`,
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forBoth(t, func(t *testing.T, s *fixture) {
				s.create(t, "a", "b", "c")
				s.waitListed(t, "a,b,c")
				poll.Until(t, "all objects were read", func() string {
					if !s.registry.AllRead(widgets) {
						return "AllRead is false"
					}
					return ""
				})
				s.put(t, "b", damage)
				poll.Until(t, "a list with a damaged object", func() string {
					const want = "StorageReadError: widgets.example.com default/b cannot be read: "
					if got := s.list(t.Context()); !strings.HasPrefix(got, want) {
						return fmt.Sprintf("listed %q, want it to begin with %q", got, want)
					}
					return ""
				})
				s.waitReported(t, "default/b")
				err := s.Get(t.Context(), key("b"), storage.GetOptions{}, &unstructured.Unstructured{})
				if !apierrors.IsStoreReadError(err) || !strings.Contains(err.Error(), "default/b cannot be read: ") {
					t.Errorf("get: %v, want an error with the reason", err)
				}
				err = s.GuaranteedUpdate(t.Context(), key("b"), &unstructured.Unstructured{}, false, nil, func(runtime.Object, storage.ResponseMeta) (runtime.Object, *uint64, error) {
					return widget("b"), nil, nil
				}, nil)
				if err == nil {
					t.Error("updated")
				}
				if err := s.Create(t.Context(), key("b"), widget("b"), nil, 0); !storage.IsExist(err) {
					t.Errorf("create: %v, want AlreadyExists", err)
				}
				if err := s.deleteUnsafely(t.Context(), "a"); err == nil {
					t.Error("a readable object was deleted unsafely")
				}
				expect.NoError(t, s.deleteUnsafely(t.Context(), "b"))
				s.waitReported(t)
				s.waitListed(t, "a,c")
				s.create(t, "b")
				s.waitListed(t, "a,b,c")
			})
		})
	}
}

// TestRecovery makes objects readable one after the other.
func TestRecovery(t *testing.T) {
	t.Parallel()
	forBoth(t, func(t *testing.T, s *fixture) {
		s.create(t, "a", "d")
		s.put(t, "b", "b:"+encoded("b"))
		s.put(t, "c", "b:"+encoded("c"))
		s.waitListed(t, unreadableMessage("default/b, default/c"))
		s.put(t, "b", "a:"+encoded("b"))
		s.waitListed(t, unreadableMessage("default/c"))
		s.waitReported(t, "default/c")
		s.put(t, "c", "a:"+encoded("c"))
		s.waitListed(t, "a,b,c,d")
		s.waitReported(t)
	})
}

// TestWatch damages an object while it is watched: the watch ends with an error, without
// false events.
func TestWatch(t *testing.T) {
	t.Parallel()
	forBoth(t, func(t *testing.T, s *fixture) {
		s.create(t, "a", "b")
		poll.Until(t, "the watch cache is ready", func() string {
			if err := s.ReadinessCheck(); err != nil {
				return err.Error()
			}
			return ""
		})
		list := &unstructured.UnstructuredList{}
		expect.NoError(t, s.GetList(t.Context(), resourcePrefix, everything(), list))
		options := everything()
		options.ResourceVersion = list.GetResourceVersion()
		watched, err := s.Watch(t.Context(), resourcePrefix, options)
		expect.NoError(t, err)
		defer watched.Stop()
		s.create(t, "c")
		s.put(t, "b", "b:"+encoded("b"))
		s.create(t, "d")
		var got []string
		for event := range watched.ResultChan() {
			if event.Type == watch.Error {
				if err := apierrors.FromObject(event.Object); !apierrors.IsStoreReadError(err) || !strings.Contains(err.Error(), "default/b cannot be read") {
					t.Errorf("ends with %v, want an error that names the object", err)
				}
				continue
			}
			got = append(got, fmt.Sprintf("%s %s", event.Type, event.Object.(metav1.Object).GetName()))
		}
		if diff := cmp.Diff([]string{"ADDED c"}, got); diff != "" {
			t.Errorf("watched (-want +got):\n%s", diff)
		}
		poll.Until(t, "a watch of all objects is refused", func() string {
			_, err := s.Watch(t.Context(), resourcePrefix, everything())
			if !apierrors.IsStoreReadError(err) && s.list(t.Context()) != "" {
				return fmt.Sprintf("watch with initial events: %v", err)
			}
			return ""
		})
	})
}

// TestNotDamaged: an object is not damaged if a service that is needed to read it fails. It
// must not be deleted.
func TestNotDamaged(t *testing.T) {
	t.Parallel()
	var unavailable error = apierrors.NewServiceUnavailable("the Store is not available")
	down := status.Error(codes.Unavailable, "the key service is down")
	tests := map[string]func(s *fixture){
		"key service down":              func(s *fixture) { s.keyed.err.Store(&down) },
		"Store of dictionaries is down": func(s *fixture) { s.keyed.err.Store(&unavailable) },
		"conversion webhook is down":    func(s *fixture) { s.webhook.down.Store(true) },
	}
	for name, fail := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t, false)
			s.create(t, "a", "b", "c")
			fail(s)
			if got := s.list(t.Context()); strings.Contains(got, ",") || strings.HasPrefix(got, "StorageReadError") {
				t.Errorf("listed %q, want an error that is not StoreReadError", got)
			}
			if (*s.kv.last.Load()).Err() == nil {
				t.Error("the read from etcd continues after the list failed")
			}
			if err := s.Get(t.Context(), key("b"), storage.GetOptions{}, &unstructured.Unstructured{}); err == nil || apierrors.IsStoreReadError(err) {
				t.Errorf("get: %v, want an error that is not StoreReadError", err)
			}
			if err := s.deleteUnsafely(t.Context(), "b"); err == nil {
				t.Error("deleted unsafely")
			}
			s.waitReported(t)
			s.keyed.err.Store(nil)
			s.webhook.down.Store(false)
			s.waitListed(t, "a,b,c")
		})
	}
}

// TestFailingListsAreCheap: repeated lists and watches do not read all objects.
func TestFailingListsAreCheap(t *testing.T) {
	t.Parallel()
	s := newFixture(t, false)
	s.create(t, "a", "c")
	s.put(t, "b", "b:"+encoded("b"))
	want := unreadableMessage("default/b")
	if got := s.list(t.Context()); got != want {
		t.Fatalf("listed %q, want %q", got, want)
	}
	before := s.kv.ranges.Load()
	for range 10 {
		if got := s.list(t.Context()); got != want {
			t.Errorf("listed %q, want %q", got, want)
		}
		if _, err := s.Watch(t.Context(), resourcePrefix, everything()); !apierrors.IsStoreReadError(err) {
			t.Errorf("watched: %v", err)
		}
	}
	if read := s.kv.ranges.Load() - before; read > 0 {
		t.Errorf("all objects were read %d times, want 0", read)
	}
	// Other namespaces are not affected.
	if err := s.GetList(t.Context(), resourcePrefix+"/other", everything(), &unstructured.UnstructuredList{}); err != nil {
		t.Error(err)
	}
}

func TestExplanationIsBounded(t *testing.T) {
	t.Parallel()
	var objects []Object
	for i := range 25 {
		objects = append(objects, Object{Namespace: "n", Name: fmt.Sprintf("w%02d", i)})
	}
	if got := explanation(widgets, objects); !strings.Contains(got, "n/w09 and 15 more") || strings.Contains(got, "n/w10") {
		t.Errorf("got %q, want ten names", got)
	}
}
