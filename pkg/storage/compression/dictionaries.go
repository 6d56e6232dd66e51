// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/storage/keys"
)

// loadTimeout bounds how long etcd is waited for: a write goes on without the
// dictionary then.
const loadTimeout = 10 * time.Second

// MissingDictionaryError is of a value that cannot be read because the dictionary
// is not there that it was compressed with. The value may be in order.
type MissingDictionaryError struct {
	// ID is the dictionary, Key where it should be.
	ID  uint32
	Key string
}

// Error says which dictionary is missing.
func (e *MissingDictionaryError) Error() string {
	return fmt.Sprintf("it was compressed with dictionary %d, which is not in the Store: the key %s is missing and has to be restored from a backup", e.ID, e.Key)
}

var errLost = errors.New("it is there, or another replica was faster")

// dictionaries are those of one resource, in its Store. Dictionaries are read once
// and kept, for as long as the resource is served.
type dictionaries struct {
	resource   schema.GroupResource
	prefix     string // that of the Store
	kv         clientv3.KV
	encryption func() value.Transformer

	// loading is held while etcd is asked; a channel, because who waits may be
	// told to stop.
	loading chan struct{}

	mu     sync.Mutex
	listed bool // ids is known
	// ids are the dictionaries that there are, by age.
	ids  []listedID
	byID map[uint32]*held
	// tried is when the list was asked for last in vain.
	tried time.Time
}

// listedID is a dictionary that is known to exist.
type listedID struct {
	id      uint32
	created int64 // revision
}

// held is a dictionary in memory.
type held struct {
	*dictionary
	// probe was encrypted before the dictionary was read: once it is stale, the
	// dictionary has to be encrypted anew too.
	probe []byte
	stale bool
}

func newDictionaries(resource schema.GroupResource, prefix string, kv clientv3.KV, encryption func() value.Transformer) *dictionaries {
	return &dictionaries{
		resource: resource, prefix: prefix, kv: kv, encryption: encryption,
		loading: make(chan struct{}, 1), byID: map[uint32]*held{},
	}
}

// current is the newest dictionary, or annex's own if the resource has none.
func (d *dictionaries) current(ctx context.Context) (*dictionary, error) {
	if d.kv == nil {
		return newestGeneric, nil
	}
	if newest, known := d.newest(); known {
		return newest, nil
	}
	release, err := d.startLoading(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if newest, known := d.newest(); known {
		return newest, nil
	}
	if d.triedLately() {
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

// newest is what current is, if that can be told from memory.
func (d *dictionaries) newest() (*dictionary, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.listed {
		return newestGeneric, false
	}
	if len(d.ids) == 0 {
		return newestGeneric, true
	}
	if newest := d.byID[d.ids[len(d.ids)-1].id]; newest != nil {
		return newest.dictionary, true
	}
	return newestGeneric, false
}

// triedLately keeps a Store that is in trouble from being asked by every write.
func (d *dictionaries) triedLately() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.tried) < loadTimeout
}

// startLoading makes the caller the only one who asks etcd, until release.
func (d *dictionaries) startLoading(ctx context.Context) (release func(), err error) {
	select {
	case d.loading <- struct{}{}:
		return func() { <-d.loading }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// get returns the dictionary with an ID.
func (d *dictionaries) get(ctx context.Context, id uint32) (*dictionary, error) {
	if found := d.inMemory(id); found != nil {
		return found.dictionary, nil
	}
	key := d.key(id)
	if d.kv == nil {
		return nil, &MissingDictionaryError{ID: id, Key: key}
	}
	release, err := d.startLoading(ctx)
	if err != nil {
		return nil, fmt.Errorf("get dictionary %d from %s: %w", id, key, err)
	}
	defer release()
	if found := d.inMemory(id); found != nil {
		return found.dictionary, nil
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	found, _, err := d.load(ctx, id)
	if err != nil {
		return nil, err
	}
	return found.dictionary, nil
}

func (d *dictionaries) inMemory(id uint32) *held {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.byID[id]
}

func (d *dictionaries) key(id uint32) string {
	return keys.Dictionary(d.prefix, d.resource, dictionaryName(id))
}

// refresh lists what there is in etcd and reads the newest. Who calls it has
// started loading.
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

// list returns the dictionaries that there are in etcd.
func (d *dictionaries) list(ctx context.Context) ([]listedID, error) {
	folder := keys.Dictionaries(d.prefix, d.resource)
	list, err := d.kv.Get(ctx, folder, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("list the dictionaries below %s: %w", folder, err)
	}
	var ids []listedID
	for _, kv := range list.Kvs {
		// Somebody may keep notes there; what is no dictionary is none.
		if id, err := parseDictionaryName(strings.TrimPrefix(string(kv.Key), folder)); err == nil {
			ids = append(ids, listedID{id, kv.CreateRevision})
		}
	}
	return ids, nil
}

// adopt uses the newest of the dictionaries that there are.
func (d *dictionaries) adopt(ctx context.Context, ids []listedID) error {
	slices.SortFunc(ids, byAge)
	if len(ids) > 0 {
		newest := ids[len(ids)-1].id
		if d.inMemory(newest) == nil {
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

// load reads a dictionary, and returns the revision it was written at.
func (d *dictionaries) load(ctx context.Context, id uint32) (*held, int64, error) {
	key := d.key(id)
	fail := func(err error) (*held, int64, error) {
		return nil, 0, fmt.Errorf("get dictionary %d from %s: %w", id, key, err)
	}
	// Before reading: a key that changes between the two is noticed by one of them.
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
	found := &held{dictionary: parsed, probe: probe, stale: stale}
	d.hold(found, got.Kvs[0].CreateRevision)
	return found, got.Kvs[0].ModRevision, nil
}

// hold keeps a dictionary. One that is newer than all that are known, as when
// another replica made it, is used from now on.
func (d *dictionaries) hold(found *held, created int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.byID[found.id] = found
	if d.listed && !slices.ContainsFunc(d.ids, func(l listedID) bool { return l.id == found.id }) {
		d.ids = append(d.ids, listedID{found.id, created})
		slices.SortFunc(d.ids, byAge)
	}
}

// follow brings what is known up to date with ids, those that there are in etcd.
// Where values are encrypted, dictionaries whose key is on its way out are encrypted
// anew.
func (d *dictionaries) follow(ctx context.Context, ids []listedID, encrypted bool) error {
	release, err := d.startLoading(ctx)
	if err != nil {
		return err
	}
	defer release()
	d.mu.Lock()
	listed := d.listed
	d.mu.Unlock()
	// What was not used yet is listed when it is.
	if listed {
		if ids, err = d.putBack(ctx, ids); err != nil {
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
		errs = append(errs, d.renew(ctx, l.id))
	}
	return errors.Join(errs...)
}

// putBack writes the dictionaries again that are in memory but not among ids, those
// that there are in etcd: annex deletes none, so somebody else did, and no value that
// needs one could be read after the next start. It returns those that there are then.
func (d *dictionaries) putBack(ctx context.Context, ids []listedID) ([]listedID, error) {
	back := 0
	for _, known := range d.known() {
		held := d.inMemory(known.id)
		if held == nil || slices.ContainsFunc(ids, func(l listedID) bool { return l.id == known.id }) {
			continue
		}
		err := d.write(ctx, held.dictionary, clientv3.Compare(clientv3.CreateRevision(d.key(known.id)), "=", 0))
		if err != nil && !errors.Is(err, errLost) {
			return nil, err
		}
		if err == nil {
			klog.FromContext(ctx).Info("Somebody deleted a dictionary, which is written again", "resource", d.resource, "key", d.key(known.id))
		}
		back++
	}
	if back == 0 {
		return ids, nil
	}
	return d.list(ctx)
}

// renew encrypts a dictionary anew if it is stale.
func (d *dictionaries) renew(ctx context.Context, id uint32) error {
	if found := d.inMemory(id); found != nil && !found.stale {
		key := d.key(id)
		_, stale, err := d.encryption().TransformFromStorage(ctx, found.probe, value.DefaultContext(key))
		if err == nil && !stale {
			return nil
		}
	}
	// The value in etcd decides.
	found, written, err := d.load(ctx, id)
	if err != nil || !found.stale {
		return err
	}
	err = d.write(ctx, found.dictionary, clientv3.Compare(clientv3.ModRevision(d.key(id)), "=", written))
	if err != nil && !errors.Is(err, errLost) {
		return err
	}
	_, _, err = d.load(ctx, id)
	return err
}

// add writes a new dictionary unless there is one that the caller did not know, or
// another with the same ID, which values may need.
func (d *dictionaries) add(ctx context.Context, added *dictionary, known []listedID) error {
	release, err := d.startLoading(ctx)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	newest := int64(0)
	if len(known) > 0 {
		newest = known[len(known)-1].created
	}
	folder := keys.Dictionaries(d.prefix, d.resource)
	err = d.write(ctx, added,
		clientv3.Compare(clientv3.CreateRevision(folder), "<", newest+1).WithPrefix(),
		clientv3.Compare(clientv3.CreateRevision(d.key(added.id)), "=", 0))
	if err != nil && !errors.Is(err, errLost) {
		return err
	}
	return errors.Join(err, d.refresh(ctx))
}

func (d *dictionaries) write(ctx context.Context, written *dictionary, conditions ...clientv3.Cmp) error {
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
		return fmt.Errorf("write dictionary %s: %w", key, errLost)
	}
	return nil
}

// known are the dictionaries that there are, the newest at the end.
func (d *dictionaries) known() []listedID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.ids)
}
