// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
	"github.com/annex-dev/annex/pkg/storage/layer/compression"
	"github.com/annex-dev/annex/pkg/storage/layer/objectsize"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

var (
	widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}
	scheme  = runtime.NewScheme()
	codec   = serializer.NewCodecFactory(scheme).LegacyCodec(examplev1.SchemeGroupVersion)
)

func init() {
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	utilruntime.Must(example.AddToScheme(scheme))
	utilruntime.Must(examplev1.AddToScheme(scheme))
}

// fakeStore is a Store with an etcd of its own, or none, that a test can make unavailable.
type fakeStore struct {
	name   string
	client *kubernetes.Client

	done chan struct{}

	mu   sync.Mutex
	down error
}

func (s *fakeStore) Name() string               { return s.name }
func (s *fakeStore) Prefix() string             { return "/of-" + s.name }
func (s *fakeStore) Client() *kubernetes.Client { return s.client }
func (s *fakeStore) Compactor() etcd3.Compactor { return nil }

func (s *fakeStore) Done() <-chan struct{} { return s.done }

// Usage is unknown: resources have no limits, and no watch cache is warming.
func (s *fakeStore) Usage() *usage.Tracker { return nil }

func (s *fakeStore) Available() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

func (s *fakeStore) set(down error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// keys returns the keys in the etcd.
func (s *fakeStore) keys(t *testing.T) []string {
	t.Helper()
	found, err := s.client.KV.Get(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	expect.NoError(t, err)
	var keys []string
	for _, kv := range found.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

func startStore(t testing.TB, name string) *fakeStore {
	t.Helper()
	client := etcdtest.StartClient(t)
	return &fakeStore{name: name, client: client, done: make(chan struct{})}
}

// fixture is a Router with its HostedResources and Stores.
type fixture struct {
	*Router
	annex  *annexfake.Clientset
	stores map[string]*fakeStore

	mu          sync.Mutex
	definition  types.UID
	terminating bool
}

func newFixture(t testing.TB, stores ...*fakeStore) *fixture {
	t.Helper()
	w := &fixture{annex: annexfake.NewClientset(), stores: map[string]*fakeStore{}, definition: "first"}
	for _, store := range stores {
		w.stores[store.name] = store
	}
	informers := annexinformers.NewSharedInformerFactory(w.annex, 0)
	router, err := New(Config{
		Store: func(name string) (Store, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if store, found := w.stores[name]; found {
				return store, nil
			}
			return nil, fmt.Errorf("there is no store %q", name)
		},
		HostedResources: informers.Hosting().V1alpha1().HostedResources(),
		LiveHostedResource: func(ctx context.Context, name string) (*hostingv1alpha1.HostedResource, error) {
			return w.annex.HostingV1alpha1().HostedResources().Get(ctx, name, metav1.GetOptions{})
		},
		Cached: func(resource schema.GroupResource) bool { return resource == widgets },
		Packed: func(schema.GroupResource) bool { return false },
		Layers: Layers{
			MaxObjectBytes: 1 << 20, ObjectBudget: objectsize.NewBudget(1<<24, time.Second), Compression: compression.NewManager(), Caches: watchcache.NewBudget(0),
		},
	})
	expect.NoError(t, err)
	w.Router = router
	ctx, cancel := context.WithCancel(context.Background())
	informers.StartWithContext(ctx)
	t.Cleanup(func() {
		cancel()
		informers.Shutdown()
	})
	informers.WaitForCacheSyncWithContext(ctx)
	return w
}

func (w *fixture) defined(string) (*apiextensionsv1.CustomResourceDefinition, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.definition == "" {
		return nil, errors.New("gone")
	}
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{UID: w.definition}}
	if w.terminating {
		definition.DeletionTimestamp = new(metav1.Now())
	}
	return definition, nil
}

// replace replaces a Store by another of its name.
func (w *fixture) replace(by *fakeStore) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.stores[by.name]
	w.stores[by.name] = by
	close(before.done)
}

func (w *fixture) define(uid types.UID, terminating bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.definition, w.terminating = uid, terminating
}

// place writes the HostedResource of widgets.
func (w *fixture) place(t testing.TB, change func(*hostingv1alpha1.HostedResource)) {
	t.Helper()
	hosted := &hostingv1alpha1.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: widgets.String()}}
	change(hosted)
	client := w.annex.HostingV1alpha1().HostedResources()
	_, err := client.Update(t.Context(), hosted, metav1.UpdateOptions{})
	if err != nil {
		_, err = client.Create(t.Context(), hosted, metav1.CreateOptions{})
	}
	expect.NoError(t, err)
}

// placedOn places widgets on a Store, for a definition.
func placedOn(store string, definition types.UID) func(*hostingv1alpha1.HostedResource) {
	return func(hosted *hostingv1alpha1.HostedResource) {
		hosted.Spec.StoreName, hosted.Status.DefinitionUID = store, definition
	}
}

// plainOptions returns the options of upstream's getter.
type plainOptions struct{}

func (plainOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	config := storagebackend.NewDefaultConfig("/of-default", codec)
	return generic.RESTOptions{StorageConfig: config.ForResource(resource), ResourcePrefix: resource.Group + "/" + resource.Resource}, nil
}

// storageOf builds storage as upstream does.
func (w *fixture) storageOf(t testing.TB, getter generic.RESTOptionsGetter, resource schema.GroupResource) storage.Interface {
	t.Helper()
	options, err := getter.GetRESTOptions(resource, nil)
	expect.NoError(t, err)
	prefix := "/" + options.ResourcePrefix
	s, destroy, err := options.Decorator(options.StorageConfig, prefix,
		func(obj runtime.Object) (string, error) { return storage.NamespaceKeyFunc(prefix+"/", obj) },
		func() runtime.Object { return &example.Pod{} }, func() runtime.Object { return &example.PodList{} },
		podAttrs, nil, nil)
	expect.NoError(t, err)
	t.Cleanup(destroy)
	return s
}

// widgetStorage builds the storage of the defined widgets.
func (w *fixture) widgetStorage(t testing.TB) storage.Interface {
	t.Helper()
	return w.storageOf(t, w.Custom(plainOptions{}, w.defined, nil), widgets)
}

// serveWidgets returns the storage of widgets that are placed.
func serveWidgets(t testing.TB, placed func(*hostingv1alpha1.HostedResource), stores ...*fakeStore) (*fixture, storage.Interface) {
	t.Helper()
	w := newFixture(t, stores...)
	w.place(t, placed)
	return w, w.widgetStorage(t)
}

// watchWidgets watches all widgets until the end of the test.
func watchWidgets(t *testing.T, s storage.Interface) watch.Interface {
	t.Helper()
	watcher, err := s.Watch(t.Context(), "/example.com/widgets/", storage.ListOptions{ResourceVersion: "0", Predicate: storage.Everything, Recursive: true})
	expect.NoError(t, err)
	t.Cleanup(watcher.Stop)
	return watcher
}

func podAttrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	pod := obj.(*example.Pod)
	return pod.Labels, fields.Set{"metadata.name": pod.Name, "metadata.namespace": pod.Namespace}, nil
}

const widgetKey = "/example.com/widgets/ns/a"

func create(ctx context.Context, s storage.Interface, key string) error {
	pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: filepath.Base(key)}}
	return s.Create(ctx, key, pod, &example.Pod{}, 0)
}

func list(ctx context.Context, s storage.Interface, resourceVersion string) (int, error) {
	var pods example.PodList
	err := s.GetList(ctx, "/example.com/widgets/", storage.ListOptions{
		ResourceVersion: resourceVersion, Predicate: storage.Everything, Recursive: true,
	}, &pods)
	return len(pods.Items), err
}

// waitCached waits until the watch cache has this many objects.
func waitCached(t *testing.T, s storage.Interface, want int) {
	t.Helper()
	b := s.(*lazyStorage).backend.Load()
	if b == nil {
		t.Fatal("the storage has no backend")
	}
	poll.UntilDone(t, fmt.Sprintf("the watch cache has %d objects", want), func() (bool, string) {
		got, _ := list(t.Context(), s, "0")
		return b.canServeReads() && got == want, fmt.Sprintf("%d objects, ready: %v", got, b.ReadinessCheck())
	})
}
