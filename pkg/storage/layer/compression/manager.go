// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
)

const (
	// trainInterval bounds the delay until a growing resource gets a dictionary.
	trainInterval = 5 * time.Second

	// followInterval bounds the delay until replicas use each other's dictionaries, and
	// until dictionaries are encrypted with a new key.
	followInterval = 30 * time.Second
)

// Resource is a resource in a Store.
type Resource struct {
	schema.GroupResource

	// Store is the name of the Store, and Prefix begins its keys.
	Store, Prefix string

	// KV is the etcd of the Store. Without it only the generic dictionary is used.
	KV clientv3.KV

	// Encryption encrypts compressed values. It may be nil.
	Encryption value.Transformer

	// Enabled reports whether writes are compressed. It is called for every value, and the
	// result may change.
	Enabled func() bool
}

// plain does not encrypt, and returns an error for encrypted values.
var plain = identity.NewEncryptCheckTransformer()

// Manager trains dictionaries for all served resources. Replicas do so without a leader:
// a transaction in etcd decides which of them adds a dictionary.
type Manager struct {
	mu        sync.Mutex
	resources map[resourceKey]*resource
}

// resourceKey includes the etcd, because a replaced one has other dictionaries.
type resourceKey struct {
	store string
	name  schema.GroupResource
	kv    clientv3.KV
}

// resource is shared by all versions of a resource.
type resource struct {
	store, prefix string
	name          schema.GroupResource
	kv            clientv3.KV
	dictionaries  *dictionaries
	settings      atomic.Pointer[Resource]
	users         int // guarded by Manager.mu

	writes   atomic.Int64 // with compression enabled
	training training
}

func (r *resource) enabled() bool                 { return r.settings.Load().Enabled() }
func (r *resource) encryption() value.Transformer { return r.settings.Load().Encryption }

// NewManager returns a Manager. Run trains dictionaries.
func NewManager() *Manager {
	return &Manager{resources: map[resourceKey]*resource{}}
}

// Transformer returns the transformer of a resource's values. The caller must call release
// after its last use.
func (m *Manager) Transformer(of Resource) (transformer value.Transformer, release func()) {
	if of.Encryption == nil {
		of.Encryption = plain
	}
	key := resourceKey{of.Store, of.GroupResource, of.KV}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resources[key]
	if r == nil {
		r = &resource{store: of.Store, prefix: of.Prefix, name: of.GroupResource, kv: of.KV}
		r.dictionaries = newDictionaries(of.GroupResource, of.Prefix, of.KV, r.encryption)
		m.resources[key] = r
	}
	r.settings.Store(&of)
	r.users++
	return r, sync.OnceFunc(func() { m.release(key, r) })
}

func (m *Manager) release(key resourceKey, r *resource) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.users--; r.users == 0 {
		delete(m.resources, key)
	}
}

// Dictionary returns the dictionary that new values of a resource are compressed with, which is
// the generic one until the resource has its own.
func (m *Manager) Dictionary(ctx context.Context, store string, name schema.GroupResource, kv clientv3.KV) *Dictionary {
	m.mu.Lock()
	found := m.resources[resourceKey{store, name, kv}]
	m.mu.Unlock()
	if found == nil {
		return Generic()
	}
	return found.current(ctx)
}

// Run trains dictionaries, and reads the dictionaries that other replicas train, until ctx is done.
func (m *Manager) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), "compression"))
	train, follow := time.Tick(trainInterval), time.Tick(followInterval)
	for {
		select {
		case <-ctx.Done():
			return
		case <-train:
			m.Train(ctx)
		case <-follow:
			m.follow(ctx)
			encoders.discardIdle()
			decoders.discardIdle()
		}
	}
}

// follow refreshes the dictionaries of all resources.
func (m *Manager) follow(ctx context.Context) {
	m.forEachStore(func(resources []*resource) {
		if err := followStore(ctx, resources); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(1).Info("Failed to refresh the dictionaries of a Store", "store", resources[0].store, "err", err)
		}
	})
}

// followStore lists the dictionaries of all resources of a Store at once.
func followStore(ctx context.Context, resources []*resource) error {
	ctx, cancel := context.WithTimeout(ctx, followInterval)
	defer cancel()
	of := resources[0] // all have the same etcd
	folder := keys.AllDictionaries(of.prefix)
	list, err := of.kv.Get(ctx, folder, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return fmt.Errorf("list the dictionaries below %s: %w", folder, err)
	}
	found := byFolder(list.Kvs)
	var errs []error
	for _, r := range resources {
		ids := found[keys.Dictionaries(r.prefix, r.name)]
		if err := r.dictionaries.follow(ctx, ids, r.settings.Load().Encryption != plain); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.name, err))
		}
	}
	return errors.Join(errs...)
}

// forEachStore calls do with the resources of each etcd that have dictionaries of their own. The
// calls are concurrent, so that an unavailable Store does not delay the others.
func (m *Manager) forEachStore(do func([]*resource)) {
	stores := map[clientv3.KV][]*resource{}
	m.mu.Lock()
	for _, r := range m.resources {
		if r.kv != nil {
			stores[r.kv] = append(stores[r.kv], r)
		}
	}
	m.mu.Unlock()
	var running sync.WaitGroup
	for _, resources := range stores {
		running.Go(func() { do(resources) })
	}
	running.Wait()
}
