// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"crypto/aes"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
	encryptaes "k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	"k8s.io/client-go/tools/cache"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/storage/etcd/externaletcd"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/etcd/stores"
	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
	"github.com/annex-dev/annex/pkg/storage/layer/compression"
	"github.com/annex-dev/annex/pkg/storage/layer/objectsize"
	"github.com/annex-dev/annex/pkg/storage/layer/revision"
	"github.com/annex-dev/annex/pkg/storage/routing"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const (
	// maxObjectBytes is annex's default.
	maxObjectBytes = 16 << 20
	// paddingBytes makes the suite's small objects large enough to be compressed.
	paddingBytes = 2000
)

// build builds the storage as annex does for a placed resource: the router finds the Store
// through the HostedResource and builds the whole stack, with an offset of revisions. Values are
// compressed with a trained dictionary, and encrypted.
func build(t *testing.T, subject *subject, etcdOptions *genericoptions.EtcdOptions, s shape) {
	t.Helper()
	prefix := etcdOptions.StorageConfig.Prefix
	dictionary := trainedDictionary(t)
	_, err := subject.etcd.Client().Put(t.Context(), keys.Dictionary(prefix, pods, dictionary.name), dictionary.value)
	expect.NoError(t, err)
	store := openStore(t, subject, etcdOptions)
	if subject.offset != 0 {
		expect.NoError(t, revision.Save(t.Context(), store.Client().KV, prefix, pods, subject.offset))
	}
	now, err := subject.etcd.Client().Get(t.Context(), "-")
	expect.NoError(t, err)
	subject.first = now.Header.Revision
	if !s.small {
		subject.codec.padding = bytes.Repeat([]byte(" "), paddingBytes)
	}
	encryption := stacked{outer: newEncryption(t), inner: subject.transformer}
	etcdOptions.StorageConfig.Transformer = encryption
	manager := compression.NewManager()
	stored, release := manager.Transformer(compression.Resource{
		GroupResource: pods, Store: store.Name(), Prefix: prefix, KV: store.Client().KV, Encryption: encryption,
		Enabled: func() bool { return true },
	})
	t.Cleanup(release)
	subject.stored = compressed{Transformer: stored, encryption: encryption, dictionary: dictionary.id}
	// The dictionary is read before the suite makes the transformer fail.
	_, err = stored.TransformToStorage(t.Context(), dictionary.sample, value.DefaultContext("any"))
	expect.NoError(t, err)
	router := newRouter(t, store, manager, subject)
	subject.Interface = decorate(t, subject, router, etcdOptions, s)
	// The first use makes the backend, whose watch cache then fills.
	poll.Until(t, "the first list", func() string {
		err := subject.GetList(t.Context(), resourcePrefix, storage.ListOptions{Predicate: storage.Everything, Recursive: true}, newPodList())
		if err != nil {
			return err.Error()
		}
		return ""
	})
}

// decorate calls the router as upstream does for a registry's store.
func decorate(t *testing.T, subject *subject, router *routing.Router, etcdOptions *genericoptions.EtcdOptions, s shape) storage.Interface {
	t.Helper()
	var endpoint watchcache.Endpoint
	var add routing.AddEndpointFunc
	newObject, newList, attrs := newPod, newPodList, podAttrs
	triggers, indexers := s.indexes()
	config := etcdOptions.StorageConfig
	if subject.custom {
		newObject, newList, attrs = newCustomPod, newCustomPodList, customPodAttrs
		triggers, indexers = nil, nil // custom resources have none
		config.Codec = customCodec{config.Codec}
		add = func(added watchcache.Endpoint) func() {
			endpoint = added
			return func() {}
		}
	}
	factory := &genericoptions.SimpleStorageFactory{StorageConfig: config}
	rest, err := router.Custom(etcdOptions.CreateRESTOptionsGetter(factory, nil), defined, add).GetRESTOptions(pods, newObject())
	expect.NoError(t, err)
	built, destroy, err := rest.Decorator(rest.StorageConfig, resourcePrefix, s.keyFunc(), newObject, newList, attrs, triggers, indexers)
	expect.NoError(t, err)
	t.Cleanup(destroy)
	if subject.custom {
		return customPods{Interface: built, encoded: endpoint.Storage}
	}
	return built
}

// definitionUID is the UID of a definition of the suite's resource.
const definitionUID types.UID = "definition"

func defined(string) (*apiextensionsv1.CustomResourceDefinition, error) {
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{UID: definitionUID}}, nil
}

func newRouter(t *testing.T, store *recordedStore, manager *compression.Manager, subject *subject) *routing.Router {
	t.Helper()
	placed := &hostingv1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: pods.String()},
		Spec:       hostingv1alpha1.HostedResourceSpec{StoreName: store.Name()},
		Status:     hostingv1alpha1.HostedResourceStatus{DefinitionUID: definitionUID},
	}
	hosting := annexfake.NewClientset(placed)
	informers := annexinformers.NewSharedInformerFactory(hosting, 0)
	router, err := routing.New(routing.Config{
		Store: func(name string) (routing.Store, error) {
			if name != store.Name() {
				return nil, fmt.Errorf("there is no store %q", name)
			}
			return store, nil
		},
		HostedResources: informers.Hosting().V1alpha1().HostedResources(),
		LiveHostedResource: func(ctx context.Context, name string) (*hostingv1alpha1.HostedResource, error) {
			return hosting.HostingV1alpha1().HostedResources().Get(ctx, name, metav1.GetOptions{})
		},
		Cached: func(schema.GroupResource) bool { return subject.cached },
		Packed: func(schema.GroupResource) bool { return subject.packed },
		Layers: routing.Layers{
			MaxObjectBytes: maxObjectBytes, ObjectBudget: objectsize.NewBudget(1<<30, time.Minute),
			Compression: manager, DefaultCompression: hostingv1alpha1.CompressionZstd,
			Caches: watchcache.NewBudget(0),
		},
	})
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	informers.StartWithContext(ctx)
	t.Cleanup(func() {
		cancel()
		informers.Shutdown()
	})
	if !cache.WaitFor(t.Context(), "hosted resources", router.HasSyncedChecker()) {
		t.Fatal("hosted resources did not become known")
	}
	return router
}

// recordedStore is a Store as annex opens it, with its breaker, fence and compaction. The suite
// sees the lists that reach it.
type recordedStore struct {
	*stores.Store
	client *kubernetes.Client
}

// Usage implements routing.Store. With unknown usage no watch cache is warming, so it serves all
// reads as soon as it is ready, as the suite expects.
func (*recordedStore) Usage() *usage.Tracker { return nil }

// Client implements routing.Store.
func (s *recordedStore) Client() *kubernetes.Client { return s.client }

func openStore(t *testing.T, subject *subject, etcdOptions *genericoptions.EtcdOptions) *recordedStore {
	t.Helper()
	config := etcdOptions.StorageConfig
	client, err := externaletcd.Dial(config.Transport.ServerList, nil, nil)
	expect.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	set, err := stores.Open(t.Context(), stores.Config{
		Default:            stores.Default{Client: client, Endpoints: config.Transport.ServerList, Prefix: config.Prefix},
		CompactionInterval: config.CompactionInterval,
		PlainSize:          compression.PlainSize,
	})
	expect.NoError(t, err)
	t.Cleanup(set.Close)
	store, err := set.Get(hostingv1alpha1.DefaultStoreName)
	expect.NoError(t, err)
	subject.recorder = storagetesting.NewKubernetesRecorder(nothing{})
	recorded := *store.Client()
	recorded.Client = clientv3.NewCtxClient(t.Context())
	recorded.KV = recordingKV{KV: storagetesting.NewKVRecorder(store.Client().KV, subject.recorder), recorder: subject.recorder}
	recorded.Watcher, recorded.Lease = store.Client().Watcher, store.Client().Lease
	recorded.Kubernetes = &recorded
	return &recordedStore{Store: store, client: &recorded}
}

// recordingKV counts the lists that reach etcd. The suite's recorder itself would have to be
// above the layers.
type recordingKV struct {
	clientv3.KV
	recorder *storagetesting.KubernetesRecorder
}

// Get implements clientv3.KV.
func (r recordingKV) Get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if op := clientv3.OpGet(key, options...); len(op.RangeBytes()) > 0 {
		if _, err := r.recorder.List(ctx, key, kubernetes.ListOptions{Revision: op.Rev(), Limit: op.Limit()}); err != nil {
			return nil, err
		}
	}
	return r.KV.Get(ctx, key, options...)
}

// nothing discards lists that are only recorded.
type nothing struct{ kubernetes.Interface }

// List implements kubernetes.Interface.
func (nothing) List(context.Context, string, kubernetes.ListOptions) (kubernetes.ListResponse, error) {
	return kubernetes.ListResponse{}, nil
}

// compressed reads what etcd has, and sees that it was compressed with the
// dictionary.
type compressed struct {
	value.Transformer
	encryption value.Transformer
	dictionary uint32
}

// TransformFromStorage implements value.Transformer.
func (c compressed) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, error) {
	decrypted, _, err := c.encryption.TransformFromStorage(ctx, data, dataCtx)
	if err != nil {
		return nil, false, err
	}
	if id, _ := compression.DictionaryID(decrypted); id != c.dictionary {
		return nil, false, fmt.Errorf("what is stored begins with %.20q and is not compressed with dictionary %d but %d", decrypted, c.dictionary, id)
	}
	return c.Transformer.TransformFromStorage(ctx, data, dataCtx)
}

// newEncryption returns the transformer of --encryption-provider-config with the provider aesgcm.
func newEncryption(t *testing.T) value.Transformer {
	t.Helper()
	block, err := aes.NewCipher([]byte("0123456789abcdef0123456789abcdef"))
	expect.NoError(t, err)
	gcm, err := encryptaes.NewGCMTransformer(block)
	expect.NoError(t, err)
	return value.NewPrefixTransformers(nil, value.PrefixTransformer{Prefix: []byte("k8s:enc:aesgcm:v1:key:"), Transformer: gcm})
}

// stacked is one transformer around another.
type stacked struct{ outer, inner value.Transformer }

// TransformToStorage implements value.Transformer.
func (s stacked) TransformToStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, error) {
	data, err := s.inner.TransformToStorage(ctx, data, dataCtx)
	if err != nil {
		return nil, err
	}
	return s.outer.TransformToStorage(ctx, data, dataCtx)
}

// TransformFromStorage implements value.Transformer.
func (s stacked) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, error) {
	data, staleOutside, err := s.outer.TransformFromStorage(ctx, data, dataCtx)
	if err != nil {
		return nil, false, err
	}
	data, staleInside, err := s.inner.TransformFromStorage(ctx, data, dataCtx)
	return data, staleOutside || staleInside, err
}
