// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/cmd/server/options"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const (
	// resourcePrefix begins the keys of the pods of upstream's suite.
	resourcePrefix = "/pods/"
	// valuePrefix begins each value that the transformer writes.
	valuePrefix = "test!"
)

var (
	pods   = schema.GroupResource{Resource: "pods"}
	scheme = runtime.NewScheme()
	codecs = serializer.NewCodecFactory(scheme)
	codec  = codecs.LegacyCodec(examplev1.SchemeGroupVersion)
)

func init() {
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	utilruntime.Must(example.AddToScheme(scheme))
	utilruntime.Must(examplev1.AddToScheme(scheme))
}

// subject is the storage under test.
type subject struct {
	storage.Interface

	cached      bool
	custom      bool
	packed      bool
	offset      int64             // from etcd's revisions to the storage's
	first       int64             // revision of etcd that objects may come after
	stored      value.Transformer // of what etcd gets
	etcd        *embeddedetcd.Server
	transformer *transformerSwitch
	codec       *failingCodec
	recorder    *storagetesting.KubernetesRecorder
}

// shape configures the storage of one test.
type shape struct {
	clusterScoped bool
	indexed       bool
	shortLeases   bool
	// small leaves objects as small as they are, so that they are not compressed.
	small bool
}

// newSubject builds the storage of a resource over an etcd of its own, out of annex's
// default options.
func newSubject(t *testing.T, v variant, s shape) *subject {
	t.Helper()
	subject := &subject{
		cached:      v.cached,
		custom:      v.custom,
		packed:      v.packed,
		offset:      v.offset,
		etcd:        etcdtest.Start(t, nil),
		transformer: newTransformerSwitch(),
		codec:       &failingCodec{Codec: codec},
	}
	etcdOptions := options.NewEtcd().Served([]string{subject.etcd.Endpoint()})
	etcdOptions.StorageConfig.Codec = subject.codec
	etcdOptions.StorageConfig.Transformer = subject.transformer
	if s.shortLeases {
		// A lease is shared for a minute, longer than the suite waits for its end.
		etcdOptions.StorageConfig.LeaseManagerConfig.ReuseDurationSeconds = 1
	}
	// The suite compares whole keys, in errors and continue tokens, with its own.
	etcdOptions.StorageConfig.Prefix = ""
	build(t, subject, &etcdOptions, s)
	return subject
}

func (s shape) keyFunc() func(runtime.Object) (string, error) {
	return func(obj runtime.Object) (string, error) {
		if s.clusterScoped {
			return storage.NoNamespaceKeyFunc(resourcePrefix, obj)
		}
		return storage.NamespaceKeyFunc(resourcePrefix, obj)
	}
}

// indexes are the indexes of real pods.
func (s shape) indexes() (storage.IndexerFuncs, *cache.Indexers) {
	if !s.indexed {
		return nil, nil
	}
	nodeName := func(obj runtime.Object) string { return obj.(*example.Pod).Spec.NodeName }
	return storage.IndexerFuncs{"spec.nodeName": nodeName}, &cache.Indexers{
		storage.FieldIndex("spec.nodeName"): func(obj any) ([]string, error) {
			return []string{obj.(*example.Pod).Spec.NodeName}, nil
		},
		storage.FieldIndex("metadata.namespace"): func(obj any) ([]string, error) {
			return []string{obj.(*example.Pod).Namespace}, nil
		},
	}
}

func newPod() runtime.Object     { return &example.Pod{} }
func newPodList() runtime.Object { return &example.PodList{} }

func podAttrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	pod, ok := obj.(*example.Pod)
	if !ok {
		return nil, nil, fmt.Errorf("a %T is not a pod", obj)
	}
	return pod.Labels, fields.Set{
		"metadata.name":      pod.Name,
		"metadata.namespace": pod.Namespace,
		"spec.nodeName":      pod.Spec.NodeName,
		"spec.restartPolicy": string(pod.Spec.RestartPolicy),
		"status.phase":       string(pod.Status.Phase),
	}, nil
}

// checkStored sees that what etcd holds can be decoded and has no resource version,
// which is etcd's to give.
func (s *subject) checkStored(ctx context.Context, t *testing.T, key string) {
	t.Helper()
	found, err := s.etcd.Client().Get(ctx, key)
	expect.NoError(t, err)
	if len(found.Kvs) != 1 {
		t.Fatalf("etcd holds %d values of %s, want one", len(found.Kvs), key)
	}
	data, _, err := s.stored.TransformFromStorage(ctx, found.Kvs[0].Value, value.DefaultContext(key))
	expect.NoError(t, err, "read what etcd holds of %s", key)
	obj, err := runtime.Decode(codec, data)
	expect.NoError(t, err, "decode what etcd holds of %s", key)
	if pod := obj.(*example.Pod); pod.ResourceVersion != "" || pod.SelfLink != "" {
		t.Errorf("stored with resource version %q and self link %q", pod.ResourceVersion, pod.SelfLink)
	}
}

// increaseRV writes something that is none of the storage's.
func (s *subject) increaseRV(ctx context.Context, t *testing.T) int64 {
	t.Helper()
	put, err := s.etcd.Client().Put(ctx, "elsewhere", "x")
	expect.NoError(t, err)
	return put.Header.Revision + s.offset
}

// compact compacts etcd as the API server does, and waits until the storage has
// noticed. A watch cache looks for compactions every 15 seconds.
func (s *subject) compact(ctx context.Context, t *testing.T, resourceVersion string) {
	t.Helper()
	revision, err := s.Versioner().ParseResourceVersion(resourceVersion)
	expect.NoError(t, err)
	inEtcd := int64(revision) - s.offset
	// The first call may have to learn what the last compaction was.
	seen, _, _, err := etcd3.Compact(ctx, s.etcd.Client(), 0, inEtcd)
	if err != nil {
		_, _, _, err = etcd3.Compact(ctx, s.etcd.Client(), seen, inEtcd)
	}
	expect.NoError(t, err, "compacting")
	before := fmt.Sprint(revision - 1)
	poll.UntilDone(t, fmt.Sprintf("the storage notices a compaction at %d", revision), func() (bool, string) {
		compacted := s.CompactRevision()
		if compacted != int64(revision) {
			return false, fmt.Sprint(compacted)
		}
		err := s.GetList(ctx, resourcePrefix, storage.ListOptions{
			Predicate: storage.Everything, Recursive: true,
			ResourceVersion: before, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
		}, &example.PodList{})
		return err != nil, "a list at " + before
	})
}

// synced is a subject whose watch cache has seen an object when Create returns, and whose watches have read
// it: upstream's functions wait for 150 ms only.
type synced struct {
	*subject
	watches *sync.Map // of readAhead, by key
}

// Create implements storage.Interface.
func (s synced) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if err := s.subject.Create(ctx, key, obj, out, ttl); err != nil {
		return err
	}
	revision, err := s.Versioner().ObjectResourceVersion(out)
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, time.Millisecond, wait.ForeverTestTimeout, true, func(ctx context.Context) (bool, error) {
		if open, ok := s.watches.Load(path.Dir(key)); ok && open.(*readAhead).revision.Load() < revision {
			return false, nil
		}
		if !s.cached {
			return true, nil
		}
		seen := newPod()
		err := s.Get(ctx, key, storage.GetOptions{ResourceVersion: "0"}, seen)
		if storage.IsNotFound(err) {
			return false, nil
		}
		return apiequality.Semantic.DeepEqual(seen, out), err
	})
}

// Watch implements storage.Interface. The suite takes 1 for the first revision. With a namespace in its context,
// as each request of one has, a watch gets only the events of the namespace from the watch cache. Upstream's
// closes a watch whose buffer of ten events stays full, which the events of parallel tests could fill.
func (s synced) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	if options.ResourceVersion == "1" {
		options.ResourceVersion = fmt.Sprint(s.offset + s.first)
	}
	if namespace := strings.TrimPrefix(key, resourcePrefix); namespace != "" {
		ctx = request.WithNamespace(ctx, namespace)
	}
	events, err := s.subject.Watch(ctx, key, options)
	if err != nil {
		return nil, err
	}
	ahead := &readAhead{Interface: events, events: make(chan watch.Event, 100)}
	s.watches.Store(key, ahead)
	go ahead.run(s.Versioner())
	return ahead, nil
}

// readAhead reads the events of a watch before its consumer does.
type readAhead struct {
	watch.Interface
	events   chan watch.Event
	revision atomic.Uint64 // of the last event that was read
}

func (r *readAhead) run(versioner storage.Versioner) {
	defer close(r.events)
	defer r.revision.Store(math.MaxUint64) // nothing follows
	for event := range r.Interface.ResultChan() {
		r.events <- event
		if revision, err := versioner.ObjectResourceVersion(event.Object); err == nil {
			r.revision.Store(revision)
		}
	}
}

// ResultChan implements watch.Interface.
func (r *readAhead) ResultChan() <-chan watch.Event { return r.events }

// unhurried is a subject that finishes writes after their context ends. Upstream's function writes until its
// watch ends with the context, and a write that has begun then must not fail.
type unhurried struct{ *subject }

// Create implements storage.Interface.
func (u unhurried) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	return u.subject.Create(context.WithoutCancel(ctx), key, obj, out, ttl)
}

// UpdatePrefixTransformer implements storagetesting.InterfaceWithPrefixTransformer.
func (s *subject) UpdatePrefixTransformer(modify storagetesting.PrefixTransformerModifier) func() {
	return s.UpdateTransformer(func(value.Transformer) value.Transformer {
		// A copy of the current one would race with its own count of reads.
		return modify(newPrefixTransformer())
	})
}

// unreliable is a subject with a key service. The suite makes objects corrupt with
// errSynthetic; any other error comes from the service.
type unreliable struct{ *subject }

// UpdateTransformer implements storagetesting.InterfaceWithTransformerOverride.
func (u unreliable) UpdateTransformer(modify storagetesting.TransformerModifier) func() {
	return u.subject.UpdateTransformer(func(current value.Transformer) value.Transformer {
		return asked{modify(current)}
	})
}

type asked struct{ value.Transformer }

// TransformFromStorage implements value.Transformer.
func (a asked) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, error) {
	data, stale, err := a.Transformer.TransformFromStorage(ctx, data, dataCtx)
	if err != nil && !errors.Is(err, errSynthetic) {
		err = fmt.Errorf("%w: %w", status.Error(codes.Unavailable, "ask for a key"), err)
	}
	return data, stale, err
}

// UpdateTransformer implements storagetesting.InterfaceWithTransformerOverride.
func (s *subject) UpdateTransformer(modify storagetesting.TransformerModifier) func() {
	current := s.transformer.current.Load()
	changed := modify(*current)
	s.transformer.current.Store(&changed)
	return func() { s.transformer.current.Store(current) }
}

// transformerSwitch is a transformer that tests exchange while it is in use.
type transformerSwitch struct {
	current atomic.Pointer[value.Transformer]
	fail    atomic.Bool
}

func newTransformerSwitch() *transformerSwitch {
	s := &transformerSwitch{}
	var prefix value.Transformer = newPrefixTransformer()
	s.current.Store(&prefix)
	return s
}

func newPrefixTransformer() *storagetesting.PrefixTransformer {
	return storagetesting.NewPrefixTransformer([]byte(valuePrefix), false)
}

var errSynthetic = errors.New("synthetic error")

// TransformFromStorage implements value.Transformer.
func (s *transformerSwitch) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, error) {
	if s.fail.Load() {
		return nil, false, errSynthetic
	}
	return (*s.current.Load()).TransformFromStorage(ctx, data, dataCtx)
}

// TransformToStorage implements value.Transformer.
func (s *transformerSwitch) TransformToStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, error) {
	return (*s.current.Load()).TransformToStorage(ctx, data, dataCtx)
}

// failingCodec is a codec that fails on demand.
type failingCodec struct {
	runtime.Codec
	fail atomic.Bool
	// padding follows every object, for what depends on its size.
	padding []byte
}

// Encode implements runtime.Encoder.
func (c *failingCodec) Encode(obj runtime.Object, w io.Writer) error {
	if err := c.Codec.Encode(obj, w); err != nil {
		return err
	}
	_, err := w.Write(c.padding)
	return err
}

// Decode implements runtime.Decoder.
func (c *failingCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if c.fail.Load() {
		return nil, nil, errSynthetic
	}
	return c.Codec.Decode(data, defaults, into)
}
