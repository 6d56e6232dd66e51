// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	oteltrace "go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/storage"
	etcdfeature "k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/client-go/tools/cache"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/observers"
	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
)

// ReadSecret reads a Secret with certificates.
type ReadSecret func(ctx context.Context, namespace, name string) (*corev1.Secret, error)

// Config holds the dependencies of a Pool.
type Config struct {
	// Default is the Store "default".
	Default Default
	// CompactionInterval is the minimum age of compacted history; with 0 nothing is compacted.
	CompactionInterval time.Duration
	// Tracer traces requests to etcd.
	Tracer oteltrace.TracerProvider
	// ReadSecret reads a Secret with certificates.
	ReadSecret ReadSecret
	// PlainSize returns the size of values without compression, nil if all are plain.
	PlainSize usage.SizeFunc
	// Usage, if set, aggregates the usage of all Stores.
	Usage *usage.Aggregator

	// For tests: these replace the constants of the same name.
	secretInterval, checkpointInterval time.Duration
}

// Default is the etcd that the command line describes.
type Default struct {
	// Client is its client. The caller closes it.
	Client *clientv3.Client
	// Endpoints are its URLs.
	Endpoints []string
	// TLS is the TLS configuration of the endpoints, nil without any.
	TLS *tls.Config
	// Prefix begins all keys.
	Prefix string
	// Embedded is set for the etcd inside the process.
	Embedded bool
	// Disk reads the volume of that etcd; nil if it is not watched.
	Disk func() (Disk, error)
}

// Pool has a Store for each API object, and the Store "default" without one.
type Pool struct {
	config Config
	// process identifies this process in checkpoints.
	process string
	// ctx is the context of all goroutines of Stores.
	ctx  context.Context
	stop context.CancelFunc

	progress sync.Once

	listeners observers.Set[func(store string)]

	mu     sync.RWMutex
	stores map[string]*Store
	// closingStores are removed Stores that are still closing.
	closingStores sync.WaitGroup
}

// Open returns a Pool with the Store "default", after its first probe. It fails if that must not
// be used. Run adds the other Stores. Close stops all of them.
func Open(ctx context.Context, config Config) (*Pool, error) {
	config.secretInterval = cmp.Or(config.secretInterval, secretInterval)
	config.checkpointInterval = cmp.Or(config.checkpointInterval, checkpointInterval)
	p := &Pool{config: config, process: string(uuid.NewUUID()), stores: map[string]*Store{}}
	p.ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	t := target{endpoints: config.Default.Endpoints, prefix: config.Default.Prefix}
	store := p.newStore(hostingv1alpha1.DefaultStoreName, desiredState{target: t})
	store.embedded = config.Default.Embedded
	if config.Default.Disk != nil {
		store.disk = &disk{read: config.Default.Disk}
	}
	var creds *credentials
	if config.Default.TLS != nil {
		creds = &credentials{config: config.Default.TLS, expires: expiry(config.Default.TLS)}
	}
	store.state.connection = newConnection(t, creds, config.Default.Client, true)
	store.state.credentials = creds
	for range initialProbes {
		// A Store that does not answer is probed again: a moment ago it did.
		store.probe(ctx)
		refused := store.Snapshot().Unavailable
		if refused == nil {
			break
		}
		if isPermanent(refused.Reason) {
			p.stop()
			return nil, fmt.Errorf("--etcd-prefix: %s", refused.Message)
		}
	}
	p.add(store)
	return p, nil
}

// initialProbes bounds the probes of the Store "default" at the start, until it answers: annex
// cannot serve without it.
const initialProbes = 3

// isPermanent reports whether waiting does not end the reason.
func isPermanent(reason string) bool {
	return reason == ReasonInUse || reason == ReasonNewerFormat || reason == ReasonNotEmpty
}

// expiry returns when the client certificate of the configuration expires; zero if that is
// unknown.
func expiry(config *tls.Config) time.Time {
	if len(config.Certificates) > 0 && config.Certificates[0].Leaf != nil {
		return config.Certificates[0].Leaf.NotAfter
	}
	return time.Time{}
}

func (p *Pool) newStore(name string, w desiredState) *Store {
	store := &Store{
		name: name, prefix: w.target.prefix, pool: p, desired: w,
		metrics: newStoreMetrics(name),
		wake:    make(chan struct{}, 1),
		probed:  make(chan struct{}),
		done:    make(chan struct{}),
		state:   probeState{reclaimResults: make(chan reclaimResult, 1)},
	}
	connecting := store.unavailable(ReasonConnecting, "annex has not reached it yet")
	store.breaker.Store(newBreaker(connecting, nil, 0, nil))
	store.known.Store(&History{})
	store.snapshot.Store(&Snapshot{Unavailable: connecting, MembersErr: connecting, readErr: connecting})
	store.client = newClient(p.ctx, store)
	store.usage = usage.NewTracker(store.client.Client, store.prefix, p.config.PlainSize)
	return store
}

// add publishes a Store and starts to probe it.
func (p *Pool) add(store *Store) {
	p.mu.Lock()
	p.stores[store.name] = store
	p.mu.Unlock()
	if p.config.Usage != nil {
		p.config.Usage.Add(store.name, store.usage)
	}
	store.start(p.ctx)
	p.notify(store.name)
}

// Get returns the Store with a name, or an *UnavailableError.
func (p *Pool) Get(name string) (*Store, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if store := p.stores[name]; store != nil {
		return store, nil
	}
	return nil, &UnavailableError{Store: name, Reason: ReasonNotFound, Message: "it does not exist"}
}

// AddListener calls a function with the name of a Store when that is added or removed, or
// becomes available or unavailable, until remove is called. The function must not block.
func (p *Pool) AddListener(listener func(store string)) (remove func()) {
	return p.listeners.Add(listener)
}

func (p *Pool) notify(store string) {
	p.listeners.Notify(func(listener func(string)) { listener(store) })
}

// Run syncs the Pool with the API objects until ctx is done. The Stores stay as they are then.
func (p *Pool) Run(ctx context.Context, informer cache.SharedIndexInformer) error {
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { p.sync(obj.(*hostingv1alpha1.Store)) },
		UpdateFunc: func(_, obj any) { p.sync(obj.(*hostingv1alpha1.Store)) },
		DeleteFunc: func(obj any) {
			if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
				p.remove(name, "")
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch stores: %w", err)
	}
	<-ctx.Done()
	return informer.RemoveEventHandler(registration)
}

// sync updates a Store from its API object.
func (p *Pool) sync(object *hostingv1alpha1.Store) {
	w := desiredState{uid: object.UID, generation: object.Generation}
	if object.Name == hostingv1alpha1.DefaultStoreName {
		// The command line configures it, and its mark does not have this UID.
		if store, err := p.Get(object.Name); err == nil {
			was := store.desiredState()
			was.generation = w.generation
			store.setDesired(was)
		}
		return
	}
	etcd := object.Spec.Etcd
	if etcd == nil {
		return // refused by validation
	}
	w.target = target{endpoints: etcd.Endpoints, prefix: etcd.KeyPrefix}
	w.defragments = etcd.Defragmentation == hostingv1alpha1.DefragmentationWhenFull
	if etcd.TLS != nil {
		w.secret = &secretRef{etcd.TLS.SecretRef.Namespace, etcd.TLS.SecretRef.Name}
	}
	if pinned, err := strconv.ParseUint(object.Status.ClusterID, 16, 64); err == nil {
		w.pinned = pinned
	}
	if history := object.Status.History; history != nil {
		w.known = History{
			Epoch: history.Epoch, Revision: history.Revision,
			Checkpoint: history.Checkpoint, CheckpointRevision: history.CheckpointRevision,
		}
	}
	if store, err := p.Get(object.Name); err == nil {
		if store.desiredState().uid == w.uid {
			store.setDesired(w)
			return
		}
		p.remove(object.Name, "it was replaced by another of the same name")
	}
	p.add(p.newStore(object.Name, w))
}

// remove closes a deleted Store.
func (p *Pool) remove(name, why string) {
	p.mu.Lock()
	store := p.stores[name]
	if store == nil || name == hostingv1alpha1.DefaultStoreName {
		p.mu.Unlock()
		return
	}
	delete(p.stores, name)
	p.mu.Unlock()
	if why == "" {
		why = "it was deleted"
	}
	if p.config.Usage != nil {
		p.config.Usage.Remove(name)
	}
	close(store.done)
	p.closingStores.Go(func() { store.close(store.unavailable(ReasonNotFound, why)) })
	p.notify(name)
}

// replace replaces a Store whose data were replaced. Its revisions are invalid in the new data,
// and may even be higher: clients that watch the old Store would wait for them.
func (p *Pool) replace(store *Store) {
	p.mu.Lock()
	if p.ctx.Err() != nil || p.stores[store.name] != store {
		p.mu.Unlock()
		return
	}
	next := p.newStore(store.name, store.desiredState())
	p.stores[store.name] = next
	next.start(p.ctx)
	close(store.done)
	p.closingStores.Go(func() { store.close(store.unavailable(ReasonDataReplaced, dataReplaced)) })
	p.mu.Unlock()
	if p.config.Usage != nil {
		p.config.Usage.Remove(next.name)
		p.config.Usage.Add(next.name, next.usage)
	}
	p.notify(next.name)
}

// Close stops all Stores and closes the connections that the Pool opened. Everything that uses
// them must have stopped.
func (p *Pool) Close() {
	p.stop()
	p.mu.RLock()
	all := maps.Clone(p.stores)
	p.mu.RUnlock()
	for _, store := range all {
		store.close(store.unavailable(ReasonConnecting, errStopped.Error()))
	}
	p.closingStores.Wait()
}

var errStopped = errors.New("annex stops")

// enableWatchProgress reports to upstream that etcd sends progress notifications on request,
// with which watch caches serve consistent reads. Upstream has one switch for the whole process,
// and one etcd that is too old would turn it off: such Stores are refused, so any other stands
// for all.
func (p *Pool) enableWatchProgress(seen *Snapshot) {
	for _, answer := range seen.Endpoints {
		if answer.Err == nil {
			p.progress.Do(func() {
				etcdfeature.DefaultFeatureSupportChecker.CheckClient(p.ctx, statusClient{answer.Endpoint, answer.Status}, storage.RequestWatchProgress)
			})
		}
	}
}

// statusClient is the status of an endpoint, for upstream's check.
type statusClient struct {
	endpoint string
	status   *clientv3.StatusResponse
}

// Endpoints implements upstream's interface.
func (v statusClient) Endpoints() []string { return []string{v.endpoint} }

// Status implements upstream's interface.
func (v statusClient) Status(context.Context, string) (*clientv3.StatusResponse, error) {
	return v.status, nil
}
