// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/annex-dev/annex/pkg/storage/keys"
)

// Dictionaries shows the dictionaries of a backup, by their keys below its prefix, as
// an etcd would: what reads values gets at them as it does in a Store.
func Dictionaries(prefix string, dictionaries map[string][]byte) clientv3.KV {
	kv := &recorded{values: map[string][]byte{}}
	for key, content := range dictionaries {
		kv.values[prefix+key] = content
	}
	return kv
}

// recorded answers Get. Nobody writes to a backup.
type recorded struct {
	clientv3.KV
	values map[string][]byte
}

// Get implements clientv3.KV.
func (r *recorded) Get(_ context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	op := clientv3.OpGet(key, options...)
	answer := &clientv3.GetResponse{}
	for _, name := range slices.Sorted(maps.Keys(r.values)) {
		if end := string(op.RangeBytes()); name != key && (end == "" || name < key || name >= end) {
			continue
		}
		kv := &mvccpb.KeyValue{Key: []byte(name)}
		if !op.IsKeysOnly() {
			kv.Value = r.values[name]
		}
		answer.Kvs = append(answer.Kvs, kv)
	}
	answer.Count = int64(len(answer.Kvs))
	return answer, nil
}

// copyDictionaries gives the Store the dictionaries of a resource, so that what is
// restored is as small as it was. They are encrypted anew, as values are. One that the
// Store has already is left alone.
func (t *Target) copyDictionaries(ctx context.Context, resource schema.GroupResource, dictionaries []object) error {
	for _, dictionary := range dictionaries {
		key := keys.Root(t.Prefix) + dictionary.key
		encrypted, err := t.Encryption(resource).TransformToStorage(ctx, dictionary.value, value.DefaultContext(key))
		if err != nil {
			return fmt.Errorf("encrypt dictionary %s: %w", dictionary.key, err)
		}
		_, err = t.KV.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).Then(clientv3.OpPut(key, string(encrypted))).Commit()
		if err != nil {
			return fmt.Errorf("write dictionary %s: %w", dictionary.key, err)
		}
	}
	return nil
}
