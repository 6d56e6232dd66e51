// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/annex-dev/annex/pkg/storage/usage"
)

// errUnsupportedWrite is what the API server never does. Letting it pass would be a way
// around limits.
var errUnsupportedWrite = errors.New("only one object at a time can be written below limits, at a revision that is named")

// write is a transaction that puts one object if it is at a revision.
type write struct {
	compares        []clientv3.Cmp
	then, otherwise []clientv3.Op

	key             string
	namespace, name string
	// revision that the object must be at, 0 for one that must not exist.
	revision int64
	size     int64
}

func (w write) creates() bool { return w.revision == 0 }

// mayGrow reports whether the write may add to what is limited.
func (w write) mayGrow(limits Limits) bool {
	if w.namespace == "" {
		limits.Namespace = noLimit
	}
	return !limits.None() && (w.creates() || limits.ofBytes())
}

// maxGrowth is what the write adds, but for what it replaces.
func (w write) maxGrowth() usage.Usage {
	growth := usage.Usage{Bytes: w.size}
	if w.creates() {
		growth.Objects = 1
	}
	return growth
}

// finds reports whether what is there is what the write is to replace.
func (w write) finds(there []*mvccpb.KeyValue) bool {
	if len(there) == 0 {
		return w.creates()
	}
	return there[0].ModRevision == w.revision
}

// neverCreates is the write, to be made without the fence: what it was to create was
// there, and must be taken for that even if it has gone since.
func (w write) neverCreates() write {
	w.compares = slices.Concat(w.compares, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(w.key), "!=", 0)})
	return w
}

func (w write) commit(ctx context.Context, kv clientv3.KV) (*clientv3.TxnResponse, error) {
	return kv.Txn(ctx).If(w.compares...).Then(w.then...).Else(w.otherwise...).Commit()
}

// toWrite recognises a transaction that writes an object below root; writes is false
// for one that does not.
func toWrite(root string, compares []clientv3.Cmp, then, otherwise []clientv3.Op) (w write, writes bool, err error) {
	w = write{compares: compares, then: then, otherwise: otherwise}
	var put *clientv3.Op
	for i, op := range then {
		if !puts(root, op) {
			continue
		}
		if put != nil || op.IsTxn() {
			return w, true, errUnsupportedWrite
		}
		put = &then[i]
	}
	if slices.ContainsFunc(otherwise, func(op clientv3.Op) bool { return puts(root, op) }) {
		return w, true, errUnsupportedWrite
	}
	if put == nil {
		return w, false, nil
	}
	w.key, w.size = string(put.KeyBytes()), int64(len(put.ValueBytes()))
	w.namespace, w.name = objectOf(strings.TrimPrefix(w.key, root))
	for _, compare := range compares {
		c := compare.GetCompare()
		if c.Target == etcdserverpb.Compare_MOD && c.Result == etcdserverpb.Compare_EQUAL && len(c.RangeEnd) == 0 && string(c.Key) == w.key {
			w.revision = c.GetModRevision()
			return w, true, nil
		}
	}
	return w, true, fmt.Errorf("write %s: %w", w.key, errUnsupportedWrite)
}

// puts reports whether an operation writes an object, in some case at least.
func puts(root string, op clientv3.Op) bool {
	if op.IsTxn() {
		_, then, otherwise := op.Txn()
		return slices.ContainsFunc(slices.Concat(then, otherwise), func(op clientv3.Op) bool { return puts(root, op) })
	}
	return op.IsPut() && strings.HasPrefix(string(op.KeyBytes()), root)
}

// objectOf takes apart what follows the resource in a key: namespace/name, or name.
func objectOf(rest string) (namespace, name string) {
	if namespace, name, ok := strings.Cut(rest, "/"); ok {
		return namespace, name
	}
	return "", rest
}
