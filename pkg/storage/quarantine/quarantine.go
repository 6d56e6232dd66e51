// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/klog/v2"
)

const (
	// maxHidden is how many objects of a resource are left out. It is how many
	// upstream reports of one list.
	maxHidden = 100

	// maxKnown is how many are remembered where there are more.
	maxKnown = 2 * maxHidden

	// defaultInterval is how often it is tried to read again what could not be read.
	defaultInterval = 10 * time.Second
)

// Config is the resource whose objects are kept apart.
type Config struct {
	Resource schema.GroupResource
	// Prefix is that of the resource's keys in etcd, with a slash at its end.
	Prefix string
	// KV reads and writes etcd as the resource does, below the quarantine.
	KV clientv3.KV
	// Transformer and Codec are what values are read through.
	Transformer value.Transformer
	Codec       runtime.Codec
	// New returns an empty object.
	New func() runtime.Object
	// Registry is told what cannot be read; nil where nobody asks.
	Registry *Registry
	// Interval replaces defaultInterval when positive.
	Interval time.Duration
}

// Quarantine is what of a resource cannot be read. All its parts have to be used
// together: KV and Watcher below the storage, Storage right around it, and Served
// around the watch cache.
type Quarantine struct {
	config Config
	ctx    context.Context
	cancel context.CancelFunc
	trying sync.WaitGroup
	// unconverted counts how often there was nothing wrong with a value, but it could
	// not be made an object of the version asked for: a webhook failed.
	unconverted atomic.Int64

	mu sync.RWMutex
	// entries are by key.
	entries map[string]entry
	tries   bool // whether try runs
	listed  bool // whether all objects were looked at
	closed  bool
}

// entry is a value that cannot be read.
type entry struct {
	revision int64
	reason   string
	// hidden is false where most objects cannot be read, so that lists fail.
	hidden bool
	// past counts how often the entry was tried since the value was replaced. Watches
	// that lag still meet it.
	past int
}

// pastTries is how long an entry outlives its value.
const pastTries = 2

// New returns a quarantine that is empty. It has to be closed.
func New(config Config) *Quarantine {
	if config.Interval <= 0 {
		config.Interval = defaultInterval
	}
	if config.Registry == nil {
		config.Registry = NewRegistry()
	}
	q := &Quarantine{config: config, entries: map[string]entry{}}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	return q
}

// Close ends what the quarantine does by itself.
func (q *Quarantine) Close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.cancel()
	q.trying.Wait()
	q.config.Registry.forget(q.config.Resource, q)
}

// present returns the values that are stored now. The lock has to be held.
func (q *Quarantine) present() map[string]entry {
	present := make(map[string]entry, len(q.entries))
	for key, known := range q.entries {
		if known.past == 0 {
			present[key] = known
		}
	}
	return present
}

// isEmpty reports whether there is nothing to leave out, as nearly always.
func (q *Quarantine) isEmpty() bool {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return len(q.entries) == 0
}

// hides reports whether a value is left out.
func (q *Quarantine) hides(kv *mvccpb.KeyValue) bool {
	q.mu.RLock()
	defer q.mu.RUnlock()
	known, ok := q.entries[string(kv.Key)]
	return ok && known.hidden && known.revision == kv.ModRevision
}

// hidden returns the objects that are left out below a key of the storage, or at
// it.
func (q *Quarantine) hidden(key string, recursive bool) []Object {
	q.mu.RLock()
	defer q.mu.RUnlock()
	var found []Object
	for full, known := range q.entries {
		below := strings.HasSuffix(full, key)
		if recursive {
			below = strings.Contains(full, strings.TrimSuffix(key, "/")+"/")
		}
		if known.hidden && below && known.past == 0 {
			found = append(found, q.object(full, known))
		}
	}
	return found
}

// object is an entry as people see it.
func (q *Quarantine) object(key string, known entry) Object {
	namespace, name, namespaced := strings.Cut(strings.TrimPrefix(key, q.config.Prefix), "/")
	if !namespaced {
		namespace, name = "", namespace
	}
	return Object{Namespace: namespace, Name: name, Reason: known.reason, Served: known.hidden}
}

// examine looks at the values of keys that could not be read, and keeps apart what
// is damaged. It reports whether it is worth to read again.
func (q *Quarantine) examine(ctx context.Context, keys []string) (again bool, err error) {
	result, err := q.look(ctx, keys)
	if err != nil || !result.decided {
		return false, err // not the values' fault
	}
	hidden, news, err := q.keepApart(ctx, result.damaged)
	return hidden && (result.readable || news), err
}

// looked is what values were found to be.
type looked struct {
	damaged  map[string]entry
	readable bool // some are, or are gone
	decided  bool // all could be judged
}

func (q *Quarantine) look(ctx context.Context, keys []string) (looked, error) {
	result := looked{damaged: map[string]entry{}, decided: true}
	for _, key := range keys {
		kv, err := q.read(ctx, key)
		if err != nil {
			return looked{}, err
		}
		if kv == nil {
			result.readable = true
			continue
		}
		switch reason, verdict := q.judge(ctx, kv); verdict {
		case readable:
			result.readable = true
		case damaged:
			result.damaged[key] = entry{revision: kv.ModRevision, reason: reason}
		default:
			result.decided = false
			return result, nil
		}
	}
	return result, nil
}

// keepApart adds what is damaged. It reports whether it is left out of lists, and
// whether any of it was not before.
func (q *Quarantine) keepApart(ctx context.Context, found map[string]entry) (hidden, news bool, err error) {
	all, err := q.config.KV.Get(ctx, q.config.Prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return false, false, fmt.Errorf("counting the objects of %s: %w", q.config.Resource, err)
	}
	hidden, news = q.add(ctx, found, all.Count)
	return hidden, news, nil
}

// read returns what etcd has under a key, or nil.
func (q *Quarantine) read(ctx context.Context, key string) (*mvccpb.KeyValue, error) {
	answer, err := q.config.KV.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", key, err)
	}
	if len(answer.Kvs) == 0 {
		return nil, nil
	}
	return answer.Kvs[0], nil
}

// add keeps values apart. It reports whether they are left out of lists, and whether
// any of them was not before.
func (q *Quarantine) add(ctx context.Context, found map[string]entry, objects int64) (hide, news bool) {
	q.mu.Lock()
	all := q.present()
	maps.Copy(all, found)
	hide = len(all) <= maxHidden && int64(2*len(all)) <= objects
	for key, value := range all {
		value.hidden = hide
		known, old := q.entries[key]
		if known == value || !old && len(q.entries) >= maxKnown {
			continue
		}
		news = true
		q.entries[key] = value
		klog.FromContext(ctx).Error(nil, "An object cannot be read", "resource", q.config.Resource, "object", q.object(key, value).String(),
			"key", key, "revision", value.revision, "reason", value.reason, "leftOutOfLists", hide)
	}
	if len(q.entries) > 0 && !q.tries && !q.closed {
		q.tries = true
		q.trying.Go(q.try)
	}
	q.mu.Unlock()
	if news {
		q.report()
	}
	return hide, news
}

// replaced notes that a value was written or deleted since.
func (q *Quarantine) replaced(key string, revision int64) {
	q.mu.Lock()
	known, ok := q.entries[key]
	ok = ok && known.revision == revision && known.past == 0
	if ok {
		known.past = 1
		q.entries[key] = known
	}
	q.mu.Unlock()
	if ok {
		q.report()
	}
}

// report tells the registry what there is now.
func (q *Quarantine) report() {
	// Held until it is told, so that what is told last is what was last.
	q.mu.RLock()
	defer q.mu.RUnlock()
	if q.closed {
		return
	}
	objects := []Object{}
	for key, known := range q.present() {
		objects = append(objects, q.object(key, known))
	}
	q.config.Registry.set(q.config.Resource, q, objects)
}

// sawAll tells the registry, once, that all objects were looked at.
func (q *Quarantine) sawAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.listed || q.closed {
		return
	}
	q.listed = true
	q.config.Registry.setListed(q.config.Resource, q)
}

// try reads again and again what could not be read, while there is anything.
func (q *Quarantine) try() {
	ticker := time.NewTicker(q.config.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-q.ctx.Done():
			return
		case <-ticker.C:
		}
		entries, done := q.nextTry()
		if done {
			return
		}
		for key, known := range entries {
			if err := q.tryOne(q.ctx, key, known); err != nil {
				klog.FromContext(q.ctx).V(2).Info("An object that cannot be read was not tried again", "key", key, "err", err)
			}
		}
	}
}

// nextTry returns what is to be tried, and whether try is over.
func (q *Quarantine) nextTry() (entries map[string]entry, done bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key, known := range q.entries {
		if known.past == 0 {
			continue
		}
		if known.past++; known.past > pastTries {
			delete(q.entries, key)
		} else {
			q.entries[key] = known
		}
	}
	q.tries = len(q.entries) > 0
	return q.present(), !q.tries
}

// tryOne looks at one entry. What can be read again is written as it is: only so do
// watches learn of it.
func (q *Quarantine) tryOne(ctx context.Context, key string, known entry) error {
	kv, err := q.read(ctx, key)
	if err != nil {
		return err
	}
	if kv == nil || kv.ModRevision != known.revision {
		q.replaced(key, known.revision)
		return nil
	}
	if _, verdict := q.judge(ctx, kv); verdict != readable {
		return nil
	}
	_, err = q.config.KV.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", kv.ModRevision)).
		Then(clientv3.OpPut(key, string(kv.Value), clientv3.WithLease(clientv3.LeaseID(kv.Lease)))).
		Commit()
	if err != nil {
		return fmt.Errorf("writing %s again: %w", key, err)
	}
	klog.FromContext(ctx).Info("An object can be read again", "resource", q.config.Resource, "object", q.object(key, known).String())
	q.replaced(key, known.revision)
	return nil
}
