// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/storage/keys"
)

const (
	// trainInterval is how soon a resource that is being filled gets a dictionary.
	trainInterval = 5 * time.Second

	// followInterval is how soon replicas use each other's dictionaries, and how
	// soon dictionaries are encrypted with a new key.
	followInterval = 30 * time.Second
)

// Resource is a resource in a Store.
type Resource struct {
	schema.GroupResource

	// Store is the name of the Store, Prefix what its keys begin with.
	Store, Prefix string

	// KV leads to the etcd of the Store. Without it the resource has no
	// dictionaries of its own.
	KV clientv3.KV

	// Encryption encrypts what was compressed; nil if nothing is encrypted.
	Encryption value.Transformer

	// Wanted reports whether what is written from now on is to be compressed. It
	// is asked for every value and may change its mind.
	Wanted func() bool
}

// plain encrypts nothing, and refuses to take what is encrypted for an object.
var plain = identity.NewEncryptCheckTransformer()

// Manager knows all resources that are served, and trains their dictionaries. No
// leader is needed for that: replicas see in etcd when another was faster.
type Manager struct {
	mu        sync.Mutex
	resources map[resourceKey]*resource
}

// resourceKey has the etcd too: the dictionaries of one that was replaced are not in
// the other.
type resourceKey struct {
	store string
	name  schema.GroupResource
	kv    clientv3.KV
}

// resource is what all versions of a resource share.
type resource struct {
	store, prefix string
	name          schema.GroupResource
	kv            clientv3.KV
	dictionaries  *dictionaries
	settings      atomic.Pointer[Resource]
	users         int // of the Manager's lock

	writes   atomic.Int64 // of values that are to be compressed
	training training
}

func (r *resource) wanted() bool                  { return r.settings.Load().Wanted() }
func (r *resource) encryption() value.Transformer { return r.settings.Load().Encryption }

// NewManager returns a Manager that trains nothing before Run.
func NewManager() *Manager {
	return &Manager{resources: map[resourceKey]*resource{}}
}

// Transformer returns what values of a resource go through on their way to and from
// its Store. release is to be called when it is not used any more.
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

func (m *Manager) all() []*resource {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*resource, 0, len(m.resources))
	for _, r := range m.resources {
		all = append(all, r)
	}
	return all
}

// Run trains dictionaries, and follows those of other replicas, until ctx is done.
func (m *Manager) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), "compression"))
	train, follow := time.NewTicker(trainInterval), time.NewTicker(followInterval)
	defer train.Stop()
	defer follow.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-train.C:
			m.Train(ctx)
		case <-follow.C:
			m.follow(ctx)
			encoders.forget()
			decoders.forget()
		}
	}
}

// follow looks after the dictionaries of all resources. A Store that is in trouble
// must not keep the others waiting.
func (m *Manager) follow(ctx context.Context) {
	var stores sync.WaitGroup
	for store, resources := range byStore(m.all()) {
		stores.Go(func() {
			if err := followStore(ctx, resources); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).V(1).Info("Following the dictionaries of a Store failed", "store", store.name, "err", err)
			}
		})
	}
	stores.Wait()
}

// followStore asks one Store for the dictionaries of all its resources at once.
func followStore(ctx context.Context, resources []*resource) error {
	ctx, cancel := context.WithTimeout(ctx, followInterval)
	defer cancel()
	of := resources[0] // all have the same etcd
	folder := keys.AllDictionaries(of.prefix)
	list, err := of.kv.Get(ctx, folder, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return fmt.Errorf("list the dictionaries below %s: %w", folder, err)
	}
	found := map[string][]listedID{}
	for _, kv := range list.Kvs {
		at := strings.LastIndexByte(string(kv.Key), '/') + 1
		resource := string(kv.Key[:at])
		// Somebody may keep notes there; what is no dictionary is none.
		if id, err := parseDictionaryName(string(kv.Key[at:])); err == nil {
			found[resource] = append(found[resource], listedID{id, kv.CreateRevision})
		}
	}
	var errs []error
	for _, r := range resources {
		ids := found[keys.Dictionaries(r.prefix, r.name)]
		if err := r.dictionaries.follow(ctx, ids, r.settings.Load().Encryption != plain); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.name, err))
		}
	}
	return errors.Join(errs...)
}

// storeKey is a Store with the etcd that it has.
type storeKey struct {
	name string
	kv   clientv3.KV
}

// byStore leaves out what has no dictionaries.
func byStore(all []*resource) map[storeKey][]*resource {
	stores := map[storeKey][]*resource{}
	for _, r := range all {
		if r.kv != nil {
			store := storeKey{r.store, r.kv}
			stores[store] = append(stores[store], r)
		}
	}
	return stores
}
