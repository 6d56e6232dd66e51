// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
)

// loadTimeout bounds the wait for etcd. A write continues without the dictionary then.
const loadTimeout = 10 * time.Second

// MissingDictionaryError means that the dictionary of a value is not in the Store. The
// value itself may be intact.
type MissingDictionaryError struct {
	ID uint32
	// Key is the missing key.
	Key string
}

// Error implements error.
func (e *MissingDictionaryError) Error() string {
	return fmt.Sprintf("it was compressed with dictionary %d, which is not in the Store: restore the key %s from a backup", e.ID, e.Key)
}

var errExists = errors.New("it exists, or another replica added one")

// dictionaries reads the dictionaries of a resource once, and caches them while the resource is
// served.
type dictionaries struct {
	resource   schema.GroupResource
	prefix     string // of the Store
	kv         clientv3.KV
	encryption func() value.Transformer

	// loading is a lock around requests to etcd.
	loading *semaphore.Weighted

	mu     sync.Mutex
	listed bool // ids is known
	// ids are the dictionaries in etcd, by age.
	ids  []listedID
	byID map[uint32]*cachedDictionary
	// tried is the time of the last list.
	tried time.Time
}

// listedID is a dictionary in etcd.
type listedID struct {
	id      uint32
	created int64 // revision
}

type cachedDictionary struct {
	*Dictionary
	// probe was encrypted before the dictionary was read. Once it is stale, the
	// dictionary has to be encrypted again, too.
	probe []byte
	stale bool
}

func newDictionaries(resource schema.GroupResource, prefix string, kv clientv3.KV, encryption func() value.Transformer) *dictionaries {
	return &dictionaries{
		resource: resource, prefix: prefix, kv: kv, encryption: encryption,
		loading: semaphore.NewWeighted(1), byID: map[uint32]*cachedDictionary{},
	}
}

// current returns the newest dictionary, or the generic one if there is none.
func (d *dictionaries) current(ctx context.Context) (*Dictionary, error) {
	if d.kv == nil {
		return newestGeneric, nil
	}
	if newest, known := d.newest(); known {
		return newest, nil
	}
	if err := d.loading.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer d.loading.Release(1)
	if newest, known := d.newest(); known {
		return newest, nil
	}
	if d.recentlyTried() {
		return newestGeneric, nil
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	if err := d.refresh(ctx); err != nil {
		return nil, err
	}
	newest, _ := d.newest()
	return newest, nil
}

// newest returns the current dictionary if it is cached.
func (d *dictionaries) newest() (*Dictionary, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.listed {
		return newestGeneric, false
	}
	if len(d.ids) == 0 {
		return newestGeneric, true
	}
	if newest := d.byID[d.ids[len(d.ids)-1].id]; newest != nil {
		return newest.Dictionary, true
	}
	return newestGeneric, false
}

// recentlyTried prevents every write from calling an unavailable Store.
func (d *dictionaries) recentlyTried() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.tried) < loadTimeout
}

func (d *dictionaries) get(ctx context.Context, id uint32) (*Dictionary, error) {
	if found := d.cached(id); found != nil {
		return found.Dictionary, nil
	}
	key := d.key(id)
	if d.kv == nil {
		return nil, &MissingDictionaryError{ID: id, Key: key}
	}
	if err := d.loading.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("get dictionary %d from %s: %w", id, key, err)
	}
	defer d.loading.Release(1)
	if found := d.cached(id); found != nil {
		return found.Dictionary, nil
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	found, _, err := d.load(ctx, id)
	if err != nil {
		return nil, err
	}
	return found.Dictionary, nil
}

func (d *dictionaries) cached(id uint32) *cachedDictionary {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.byID[id]
}

func (d *dictionaries) key(id uint32) string {
	return keys.Dictionary(d.prefix, d.resource, dictionaryName(id))
}

// refresh lists the dictionaries in etcd and reads the newest. It requires d.loading.
func (d *dictionaries) refresh(ctx context.Context) error {
	d.mu.Lock()
	d.tried = time.Now()
	d.mu.Unlock()
	ids, err := d.list(ctx)
	if err != nil {
		return err
	}
	return d.adopt(ctx, ids)
}

// list returns the dictionaries in etcd.
func (d *dictionaries) list(ctx context.Context) ([]listedID, error) {
	folder := keys.Dictionaries(d.prefix, d.resource)
	list, err := d.kv.Get(ctx, folder, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("list the dictionaries below %s: %w", folder, err)
	}
	return byFolder(list.Kvs)[folder], nil
}

// byFolder returns the dictionaries among keys, by what precedes their IDs.
func byFolder(found []*mvccpb.KeyValue) map[string][]listedID {
	ids := map[string][]listedID{}
	for _, kv := range found {
		folder, name := path.Split(string(kv.Key))
		// Other keys are ignored.
		if id, err := parseDictionaryName(name); err == nil {
			ids[folder] = append(ids[folder], listedID{id, kv.CreateRevision})
		}
	}
	return ids
}

// adopt sets the list of dictionaries, and reads the newest.
func (d *dictionaries) adopt(ctx context.Context, ids []listedID) error {
	slices.SortFunc(ids, byAge)
	if len(ids) > 0 {
		newest := ids[len(ids)-1].id
		if d.cached(newest) == nil {
			if _, _, err := d.load(ctx, newest); err != nil {
				return err
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ids, d.listed = ids, true
	return nil
}

func byAge(a, b listedID) int { return cmp.Compare(a.created, b.created) }

// load reads a dictionary, and returns its ModRevision.
func (d *dictionaries) load(ctx context.Context, id uint32) (*cachedDictionary, int64, error) {
	key := d.key(id)
	fail := func(err error) (*cachedDictionary, int64, error) {
		return nil, 0, fmt.Errorf("get dictionary %d from %s: %w", id, key, err)
	}
	// Before reading, so that a key change in between makes the probe stale.
	probe, err := d.encryption().TransformToStorage(ctx, []byte(key), value.DefaultContext(key))
	if err != nil {
		return fail(err)
	}
	got, err := d.kv.Get(ctx, key)
	if err != nil {
		return fail(err)
	}
	if len(got.Kvs) == 0 {
		return nil, 0, &MissingDictionaryError{ID: id, Key: key}
	}
	content, stale, err := d.encryption().TransformFromStorage(ctx, got.Kvs[0].Value, value.DefaultContext(key))
	if err != nil {
		return fail(err)
	}
	parsed, err := parseDictionary(id, content)
	if err != nil {
		return fail(err)
	}
	found := &cachedDictionary{Dictionary: parsed, probe: probe, stale: stale}
	d.store(found, got.Kvs[0].CreateRevision)
	return found, got.Kvs[0].ModRevision, nil
}

// store caches a dictionary. If it is newer than all others, as when another replica
// trained it, it becomes the current one.
func (d *dictionaries) store(found *cachedDictionary, created int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.byID[found.id] = found
	if d.listed && !slices.ContainsFunc(d.ids, func(l listedID) bool { return l.id == found.id }) {
		d.ids = append(d.ids, listedID{found.id, created})
		slices.SortFunc(d.ids, byAge)
	}
}

// follow updates the cache to ids, the dictionaries in etcd. If values are encrypted, it
// re-encrypts dictionaries with an outdated key.
func (d *dictionaries) follow(ctx context.Context, ids []listedID, encrypted bool) error {
	if err := d.loading.Acquire(ctx, 1); err != nil {
		return err
	}
	defer d.loading.Release(1)
	d.mu.Lock()
	listed := d.listed
	d.mu.Unlock()
	// An unused resource is listed on its first use.
	if listed {
		var err error
		if ids, err = d.restore(ctx, ids); err != nil {
			return err
		}
		if err := d.adopt(ctx, ids); err != nil {
			return err
		}
	}
	if !encrypted {
		return nil
	}
	var errs []error
	for _, l := range ids {
		errs = append(errs, d.reencrypt(ctx, l.id))
	}
	return errors.Join(errs...)
}

// restore writes cached dictionaries that are not among ids, those in etcd. annex never
// deletes one, and values that need it could not be read after a restart. It returns the
// dictionaries in etcd.
func (d *dictionaries) restore(ctx context.Context, ids []listedID) ([]listedID, error) {
	restored := 0
	for _, known := range d.known() {
		found := d.cached(known.id)
		if found == nil || slices.ContainsFunc(ids, func(l listedID) bool { return l.id == known.id }) {
			continue
		}
		err := d.write(ctx, found.Dictionary, clientv3.Compare(clientv3.CreateRevision(d.key(known.id)), "=", 0))
		if err != nil && !errors.Is(err, errExists) {
			return nil, err
		}
		if err == nil {
			klog.FromContext(ctx).Info("Restored a deleted dictionary", "resource", d.resource, "key", d.key(known.id))
		}
		restored++
	}
	if restored == 0 {
		return ids, nil
	}
	return d.list(ctx)
}

// reencrypt encrypts a dictionary again if it is stale.
func (d *dictionaries) reencrypt(ctx context.Context, id uint32) error {
	if found := d.cached(id); found != nil && !found.stale {
		key := d.key(id)
		_, stale, err := d.encryption().TransformFromStorage(ctx, found.probe, value.DefaultContext(key))
		if err == nil && !stale {
			return nil
		}
	}
	// Another replica may have written it.
	found, written, err := d.load(ctx, id)
	if err != nil || !found.stale {
		return err
	}
	err = d.write(ctx, found.Dictionary, clientv3.Compare(clientv3.ModRevision(d.key(id)), "=", written))
	if err != nil && !errors.Is(err, errExists) {
		return err
	}
	_, _, err = d.load(ctx, id)
	return err
}

// add writes a new dictionary unless etcd has one that is not in known, or one with the
// same ID, which values may need.
func (d *dictionaries) add(ctx context.Context, added *Dictionary, known []listedID) error {
	if err := d.loading.Acquire(ctx, 1); err != nil {
		return err
	}
	defer d.loading.Release(1)
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	newest := int64(0)
	if len(known) > 0 {
		newest = known[len(known)-1].created
	}
	folder := keys.Dictionaries(d.prefix, d.resource)
	err := d.write(ctx, added,
		clientv3.Compare(clientv3.CreateRevision(folder), "<", newest+1).WithPrefix(),
		clientv3.Compare(clientv3.CreateRevision(d.key(added.id)), "=", 0))
	if err != nil && !errors.Is(err, errExists) {
		return err
	}
	return errors.Join(err, d.refresh(ctx))
}

func (d *dictionaries) write(ctx context.Context, written *Dictionary, conditions ...clientv3.Cmp) error {
	key := d.key(written.id)
	stored, err := d.encryption().TransformToStorage(ctx, written.content, value.DefaultContext(key))
	if err != nil {
		return fmt.Errorf("write dictionary %s: %w", key, err)
	}
	result, err := d.kv.Txn(ctx).If(conditions...).Then(clientv3.OpPut(key, string(stored))).Commit()
	if err != nil {
		return fmt.Errorf("write dictionary %s: %w", key, err)
	}
	if !result.Succeeded {
		return fmt.Errorf("write dictionary %s: %w", key, errExists)
	}
	return nil
}

// known returns the dictionaries in etcd, the newest last.
func (d *dictionaries) known() []listedID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.ids)
}
