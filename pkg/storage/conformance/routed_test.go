// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"crypto/aes"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
	encryptaes "k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	"k8s.io/client-go/tools/cache"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/storage/compression"
	"github.com/annex-dev/annex/pkg/storage/objectsize"
	"github.com/annex-dev/annex/pkg/storage/revision"
	"github.com/annex-dev/annex/pkg/storage/routing"
	"github.com/annex-dev/annex/pkg/storage/usage"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const (
	secondStore = "second"
	// maxObjectBytes is annex's default.
	maxObjectBytes = 16 << 20
	// paddingBytes makes the suite's small objects large enough to be compressed.
	paddingBytes = 2000
)

// buildRouted builds the storage as annex builds it for a resource that is placed on
// a Store: the router finds that through the resource's HostedResource, and what it
// puts between is there, an offset of revisions among it. Values are compressed and
// encrypted.
func buildRouted(t *testing.T, subject *subject, etcdOptions *genericoptions.EtcdOptions, s shape) {
	t.Helper()
	store := newSecondStore(t, subject, etcdOptions)
	if subject.offset != 0 {
		if err := revision.Save(t.Context(), store.client.KV, store.Prefix(), pods, subject.offset); err != nil {
			t.Fatal(err)
		}
	}
	if !s.small {
		subject.codec.padding = bytes.Repeat([]byte(" "), paddingBytes)
	}
	encryption := stacked{outer: newEncryption(t), inner: subject.transformer}
	etcdOptions.StorageConfig.Transformer = encryption
	stored, release := compression.NewManager().Transformer(compression.Resource{
		GroupResource: pods, Store: secondStore, Prefix: store.prefix, KV: store.client.KV, Encryption: encryption,
		Wanted: func() bool { return true },
	})
	t.Cleanup(release)
	subject.stored = compressed{Transformer: stored, encryption: encryption}
	router := newRouter(t, store, subject.cached)
	factory := &genericoptions.SimpleStorageFactory{StorageConfig: etcdOptions.StorageConfig}
	rest, err := router.Typed(etcdOptions.CreateRESTOptionsGetter(factory, nil)).GetRESTOptions(pods, newPod())
	if err != nil {
		t.Fatal(err)
	}
	triggers, indexers := s.indexes()
	built, destroy, err := rest.Decorator(rest.StorageConfig, resourcePrefix, s.keyFunc(), newPod, newPodList, podAttrs, triggers, indexers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(destroy)
	subject.Interface = built
	// The first use makes the backend, whose watch cache then fills.
	poll.UntilNoProblem(t, wait.ForeverTestTimeout, "the first list", func() string {
		err := built.GetList(t.Context(), resourcePrefix, storage.ListOptions{Predicate: storage.Everything, Recursive: true}, newPodList())
		if err != nil {
			return err.Error()
		}
		return ""
	})
}

func newRouter(t *testing.T, store *secondEtcd, cached bool) *routing.Router {
	t.Helper()
	placed := &hostingv1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: pods.String()},
		Spec:       hostingv1alpha1.HostedResourceSpec{StoreName: secondStore},
	}
	hosting := annexfake.NewClientset(placed)
	informers := annexinformers.NewSharedInformerFactory(hosting, 0)
	router, err := routing.New(routing.Config{
		Store: func(name string) (routing.Store, error) {
			if name != secondStore {
				return nil, fmt.Errorf("there is no store %q", name)
			}
			return store, nil
		},
		HostedResources: informers.Hosting().V1alpha1().HostedResources(),
		LiveHostedResource: func(ctx context.Context, name string) (*hostingv1alpha1.HostedResource, error) {
			return hosting.HostingV1alpha1().HostedResources().Get(ctx, name, metav1.GetOptions{})
		},
		Cached:      func(schema.GroupResource) bool { return cached },
		Compression: routing.Compression{Manager: compression.NewManager(), Default: hostingv1alpha1.CompressionZstd},
		ObjectSize:  routing.ObjectSize{MaxBytes: maxObjectBytes, Budget: objectsize.NewBudget(1<<30, time.Minute)},
	})
	if err != nil {
		t.Fatal(err)
	}
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

// secondEtcd is a routing.Store.
type secondEtcd struct {
	client    *kubernetes.Client
	compactor etcd3.Compactor
	prefix    string
	usage     *usage.Tracker
}

func (s *secondEtcd) Name() string               { return secondStore }
func (s *secondEtcd) Prefix() string             { return s.prefix }
func (s *secondEtcd) Client() *kubernetes.Client { return s.client }
func (s *secondEtcd) Compactor() etcd3.Compactor { return s.compactor }
func (s *secondEtcd) Usage() *usage.Tracker      { return s.usage }
func (s *secondEtcd) Available() error           { return nil }

func newSecondStore(t *testing.T, subject *subject, etcdOptions *genericoptions.EtcdOptions) *secondEtcd {
	t.Helper()
	client, err := kubernetes.New(clientv3.Config{Endpoints: etcdOptions.StorageConfig.Transport.ServerList, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	compactor := etcd3.StartCompactorPerEndpoint(client.Client, etcdOptions.StorageConfig.CompactionInterval)
	t.Cleanup(compactor.Stop)
	subject.recorder = storagetesting.NewKubernetesRecorder(nothing{})
	client.KV = recordingKV{KV: storagetesting.NewKVRecorder(client.KV, subject.recorder), recorder: subject.recorder}
	store := &secondEtcd{client: client, compactor: compactor, prefix: etcdOptions.StorageConfig.Prefix}
	store.usage = usage.NewTracker(client.Client, store.prefix, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { store.usage.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return store
}

// recordingKV tells the suite's recorder of the lists that get to etcd. The recorder
// itself would have to be above what the router puts between.
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

// nothing is where lists go that are only recorded.
type nothing struct{ kubernetes.Interface }

// List implements kubernetes.Interface.
func (nothing) List(context.Context, string, kubernetes.ListOptions) (kubernetes.ListResponse, error) {
	return kubernetes.ListResponse{}, nil
}

// compressed reads what etcd has, and sees that it was compressed.
type compressed struct {
	value.Transformer
	encryption value.Transformer
}

// TransformFromStorage implements value.Transformer.
func (c compressed) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, error) {
	decrypted, _, err := c.encryption.TransformFromStorage(ctx, data, dataCtx)
	if err != nil {
		return nil, false, err
	}
	if !compression.IsCompressed(decrypted) {
		return nil, false, fmt.Errorf("what is stored begins with %.20q and is not compressed", decrypted)
	}
	return c.Transformer.TransformFromStorage(ctx, data, dataCtx)
}

// newEncryption is what --encryption-provider-config makes of the provider aesgcm.
func newEncryption(t *testing.T) value.Transformer {
	t.Helper()
	block, err := aes.NewCipher([]byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := encryptaes.NewGCMTransformer(block)
	if err != nil {
		t.Fatal(err)
	}
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
