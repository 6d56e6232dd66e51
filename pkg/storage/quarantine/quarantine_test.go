// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
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
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/annex-dev/annex/pkg/storage/embeddedetcd/etcdtest"
)

const (
	patience       = 60 * time.Second
	resourcePrefix = "/example.com/widgets"
)

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

// lock is a transformer with a key: what begins with another one cannot be read.
type lock struct {
	known atomic.Pointer[[]string]
	down  atomic.Bool
}

func (l *lock) TransformFromStorage(_ context.Context, data []byte, _ value.Context) ([]byte, bool, error) {
	if l.down.Load() {
		return nil, false, fmt.Errorf("asking for a key: %w", status.Error(codes.Unavailable, "the key service is down"))
	}
	for _, key := range *l.known.Load() {
		if plain, ok := bytes.CutPrefix(data, []byte(key)); ok {
			return plain, false, nil
		}
	}
	return nil, false, errors.New("no matching key was found")
}

func (l *lock) TransformToStorage(_ context.Context, data []byte, _ value.Context) ([]byte, error) {
	return append([]byte((*l.known.Load())[0]), data...), nil
}

func (l *lock) use(keys ...string) { l.known.Store(&keys) }

// subject is a resource in an etcd, with a watch cache or without.
type subject struct {
	storage.Interface
	etcd     *clientv3.Client
	lock     *lock
	registry *Registry
}

func newSubject(t *testing.T, cached bool) *subject {
	t.Helper()
	etcd := etcdtest.Start(t, nil)
	s := &subject{etcd: etcd.Client(), lock: &lock{}, registry: NewRegistry()}
	s.lock.use("a:")

	newFunc := func() runtime.Object {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
	}
	newListFunc := func() runtime.Object { return &unstructured.UnstructuredList{} }
	q := New(Config{
		Resource: widgets, Prefix: "/annex" + resourcePrefix + "/", KV: s.etcd.KV, Transformer: s.lock, Codec: unstructured.UnstructuredJSONScheme,
		New: newFunc, Registry: s.registry, Interval: 200 * time.Millisecond,
	})
	t.Cleanup(q.Close)
	codec := q.Codec(unstructured.UnstructuredJSONScheme)

	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	client := clientv3.NewCtxClient(ctx)
	client.KV, client.Watcher, client.Lease = q.KV(s.etcd.KV), q.Watcher(s.etcd.Watcher), s.etcd.Lease
	annexEtcd := &kubernetes.Client{Client: client}
	annexEtcd.Kubernetes = annexEtcd
	versioner := storage.APIObjectVersioner{}
	decoder := etcd3.WithCorruptObjErrorHandlingDecoder(etcd3.NewDefaultDecoder(codec, versioner))
	raw, err := etcd3.New(annexEtcd, nil, codec, newFunc, newListFunc, "/annex", resourcePrefix, widgets,
		etcd3.WithCorruptObjErrorHandlingTransformer(s.lock), etcd3.NewDefaultLeaseManagerConfig(), decoder, versioner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(raw.Close)
	s.Interface = q.Storage(etcd3.NewStoreWithUnsafeCorruptObjectDeletion(raw, widgets))
	if cached {
		watchCache, err := cacher.NewCacherFromConfig(cacher.Config{
			Storage: s.Interface, Versioner: versioner, GroupResource: widgets, EventsHistoryWindow: 2 * time.Minute,
			ResourcePrefix: resourcePrefix, NewFunc: newFunc, NewListFunc: newListFunc, GetAttrsFunc: attrs, Codec: codec,
			KeyFunc: func(obj runtime.Object) (string, error) { return key(obj.(*unstructured.Unstructured).GetName()), nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(watchCache.Stop)
		delegator := cacher.NewCacheDelegator(watchCache, s.Interface)
		t.Cleanup(delegator.Stop)
		s.Interface = delegator
	}
	s.Interface = q.Served(s.Interface)
	return s
}

func attrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	object := obj.(*unstructured.Unstructured)
	return object.GetLabels(), fields.Set{"metadata.name": object.GetName(), "metadata.namespace": object.GetNamespace()}, nil
}

func key(name string) string { return resourcePrefix + "/default/" + name }

func widget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": name, "namespace": "default"},
	}}
}

func (s *subject) create(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := s.Create(t.Context(), key(name), widget(name), nil, 0); err != nil {
			t.Fatalf("creating %s: %v", name, err)
		}
	}
}

// put writes a value past the storage.
func (s *subject) put(t *testing.T, name, value string) {
	t.Helper()
	if _, err := s.etcd.Put(t.Context(), "/annex"+key(name), value); err != nil {
		t.Fatal(err)
	}
}

// list lists as a client does.
func (s *subject) list(ctx context.Context, verb string, options storage.ListOptions) ([]string, error) {
	if verb != "" {
		ctx = request.WithRequestInfo(ctx, &request.RequestInfo{Verb: verb, IsResourceRequest: true})
	}
	list := &unstructured.UnstructuredList{}
	if options.Predicate.GetAttrs == nil {
		options.Predicate = storage.Everything
	}
	options.Recursive = true
	if err := s.GetList(ctx, resourcePrefix, options, list); err != nil {
		return nil, err
	}
	names := []string{}
	for _, item := range list.Items {
		names = append(names, item.GetName())
	}
	return names, nil
}

func (s *subject) waitListed(t *testing.T, want ...string) {
	t.Helper()
	s.wait(t, func() string {
		got, err := s.list(t.Context(), "list", storage.ListOptions{})
		if err != nil {
			return err.Error()
		}
		return cmp.Diff(want, got)
	})
}

func (s *subject) waitReported(t *testing.T, want ...string) {
	t.Helper()
	s.wait(t, func() string {
		got := []string{}
		for _, object := range s.registry.Unreadable(widgets) {
			got = append(got, object.String())
		}
		return cmp.Diff(append([]string{}, want...), got)
	})
}

func (s *subject) wait(t *testing.T, check func() string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for problem := check(); problem != ""; problem = check() {
		if time.Now().After(deadline) {
			t.Fatalf("still after %s: %s", patience, problem)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func forBoth(t *testing.T, test func(t *testing.T, s *subject)) {
	t.Helper()
	for name, cached := range map[string]bool{"cached": true, "not cached": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newSubject(t, cached))
		})
	}
}

func TestNeighboursAreServed(t *testing.T) {
	t.Parallel()
	damages := map[string]string{
		"encrypted with another key": `b:{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"b","namespace":"default"}}`,
		"cut":                        `a:{"apiVersion":"example.com/v1","kind":"Wid`,
		"empty":                      ``,
		"of another group":           `a:{"apiVersion":"other.example.com/v1","kind":"Widget","metadata":{"name":"b"}}`,
		"of another kind":            `a:{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"b"}}`,
		"without a name":             `a:{"apiVersion":"example.com/v1","kind":"Widget"}`,
		"without a kind":             `a:{"metadata":{"name":"b"}}`,
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forBoth(t, func(t *testing.T, s *subject) {
				s.create(t, "a", "b", "c")
				s.waitListed(t, "a", "b", "c")
				s.put(t, "b", damage)
				s.waitListed(t, "a", "c")
				s.waitReported(t, "default/b")
				if !s.registry.Listed(widgets) {
					t.Error("all objects were listed, and that is not known")
				}

				for _, version := range []string{"", "0"} {
					err := s.Get(t.Context(), key("b"), storage.GetOptions{ResourceVersion: version}, &unstructured.Unstructured{})
					if apierrors.ReasonForError(err) != metav1.StatusReasonStoreReadError || !strings.Contains(err.Error(), "default/b cannot be read: it cannot be de") {
						t.Errorf("reading it at version %q: got %v, want an error that says why it cannot be read", version, err)
					}
				}
				err := s.GuaranteedUpdate(t.Context(), key("b"), &unstructured.Unstructured{}, false, nil, func(runtime.Object, storage.ResponseMeta) (runtime.Object, *uint64, error) {
					return widget("b"), nil, nil
				}, nil)
				if err == nil {
					t.Error("it was updated")
				}
				if err := s.Create(t.Context(), key("b"), widget("b"), nil, 0); !storage.IsExist(err) {
					t.Errorf("creating it: got %v, want that it exists", err)
				}

				for _, verb := range []string{"deletecollection", ""} {
					if _, err := s.list(t.Context(), verb, storage.ListOptions{}); err == nil || !strings.Contains(err.Error(), "default/b") {
						t.Errorf("listing to delete, by verb %q: got %v, want a refusal that names it", verb, err)
					}
				}
				s.delete(t, "b")
				s.waitReported(t)
				s.waitListed(t, "a", "c")
				if _, err := s.list(t.Context(), "", storage.ListOptions{}); err != nil {
					t.Errorf("listing to delete, it being gone: %v", err)
				}
				s.create(t, "b")
				s.waitListed(t, "a", "b", "c")
			})
		})
	}
}

// delete deletes what cannot be read, as upstream does on request.
func (s *subject) delete(t *testing.T, name string) {
	t.Helper()
	err := s.Delete(t.Context(), key(name), &unstructured.Unstructured{}, nil, rest.ValidateAllObjectFunc, nil,
		storage.DeleteOptions{ExpectTransformOrDecodeError: true})
	if err != nil {
		t.Fatalf("deleting %s: %v", name, err)
	}
}

// TestRecovery adds the key that an object was encrypted with. Watches have to learn
// of it.
func TestRecovery(t *testing.T) {
	t.Parallel()
	forBoth(t, func(t *testing.T, s *subject) {
		s.create(t, "a", "c")
		s.put(t, "b", `b:{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"b","namespace":"default"}}`)
		s.waitListed(t, "a", "c")
		version := s.version(t)
		s.lock.use("a:", "b:")
		got := s.watchFrom(t, version, 1)
		// A cache that was filled again sends who watches to list.
		if want := []string{"ADDED b", "MODIFIED b", "EXPIRED"}; len(got) != 1 || !slices.Contains(want, got[0]) {
			t.Errorf("watched %q, want that b was added", got)
		}
		s.waitReported(t)
		s.waitListed(t, "a", "b", "c")
	})
}

// TestWrongKeys has most objects unreadable: then lists fail, rather than to look as
// if all had been deleted.
func TestWrongKeys(t *testing.T) {
	t.Parallel()
	forBoth(t, func(t *testing.T, s *subject) {
		for i := range 5 {
			name := fmt.Sprintf("w%d", i)
			s.put(t, name, `b:{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"`+name+`","namespace":"default"}}`)
		}
		s.create(t, "x", "y", "z")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if names, err := s.list(ctx, "list", storage.ListOptions{}); err == nil {
			t.Errorf("listed %q, want an error", names)
		}
		s.waitReported(t, "default/w0", "default/w1", "default/w2", "default/w3", "default/w4")
		for _, object := range s.registry.Unreadable(widgets) {
			if object.Served {
				t.Errorf("%s is left out of lists, want them to fail", object)
			}
		}
		s.lock.use("a:", "b:")
		s.waitReported(t)
		s.waitListed(t, "w0", "w1", "w2", "w3", "w4", "x", "y", "z")
	})
}

// TestKeyServiceDown sees that what does not answer damages nothing.
func TestKeyServiceDown(t *testing.T) {
	t.Parallel()
	s := newSubject(t, false)
	s.create(t, "a", "b", "c")
	s.lock.down.Store(true)
	if names, err := s.list(t.Context(), "list", storage.ListOptions{}); err == nil {
		t.Errorf("listed %q, want an error", names)
	}
	s.waitReported(t)
	s.lock.down.Store(false)
	s.waitListed(t, "a", "b", "c")
}

// TestPages reads page by page, some of which have nothing that can be read.
func TestPages(t *testing.T) {
	t.Parallel()
	s := newSubject(t, false)
	var want []string
	for i := range 20 {
		name := fmt.Sprintf("w%02d", i)
		if i >= 5 && i < 10 || i >= 17 {
			s.put(t, name, "damaged")
			continue
		}
		s.create(t, name)
		want = append(want, name)
	}
	ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{Verb: "list"})
	for _, limit := range []int64{1, 2, 3, 7, 12, 100} {
		var got []string
		for token := ""; ; {
			options := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
			options.Predicate.Limit, options.Predicate.Continue = limit, token
			page := &unstructured.UnstructuredList{}
			if err := s.GetList(ctx, resourcePrefix, options, page); err != nil {
				t.Fatalf("in pages of %d: %v", limit, err)
			}
			for _, item := range page.Items {
				got = append(got, item.GetName())
			}
			if token = page.GetContinue(); token == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d: got %q, want %q", limit, got, want)
		}
	}
}

func TestRefusalIsBounded(t *testing.T) {
	t.Parallel()
	var objects []Object
	for i := range 25 {
		objects = append(objects, Object{Namespace: "n", Name: fmt.Sprintf("w%02d", i)})
	}
	err := (&Quarantine{config: Config{Resource: widgets}}).refusal(objects)
	if !strings.Contains(err.Error(), "n/w09 and 15 more") || strings.Contains(err.Error(), "n/w10") {
		t.Errorf("got %q, want ten names", err)
	}
	if apierrors.ReasonForError(err) != metav1.StatusReasonStoreReadError {
		t.Errorf("reason %s", apierrors.ReasonForError(err))
	}
}
