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

	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
)

// errUnsupportedWrite refuses writes that would bypass the limits. The API server makes none.
var errUnsupportedWrite = errors.New("below limits a transaction can write one object, on condition of its revision")

// write is a transaction that puts one object if it is at a revision.
type write struct {
	compares        []clientv3.Cmp
	then, otherwise []clientv3.Op

	key             string
	namespace, name string
	// revision is the required one of the object, 0 if it must not exist.
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

// maxGrowth returns what the write adds, without subtracting the object that it replaces.
func (w write) maxGrowth() usage.Usage {
	growth := usage.Usage{Bytes: w.size}
	if w.creates() {
		growth.Objects = 1
	}
	return growth
}

// finds reports whether the stored object is the one that the write replaces.
func (w write) finds(there []*mvccpb.KeyValue) bool {
	if len(there) == 0 {
		return w.creates()
	}
	return there[0].ModRevision == w.revision
}

// neverCreates returns the write for use without the fence: the object to create existed, and
// the write must fail even if it was deleted since.
func (w write) neverCreates() write {
	w.compares = slices.Concat(w.compares, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(w.key), "!=", 0)})
	return w
}

func (w write) commit(ctx context.Context, kv clientv3.KV) (*clientv3.TxnResponse, error) {
	return kv.Txn(ctx).If(w.compares...).Then(w.then...).Else(w.otherwise...).Commit()
}

// writeOf returns the write of an object below root that an operation makes, nil if it makes none.
func writeOf(root string, op clientv3.Op) (*write, error) {
	if !puts(root, op) {
		return nil, nil
	}
	compares, then, otherwise := op.Txn()
	putsOne := func(op clientv3.Op) bool { return puts(root, op) }
	at := slices.IndexFunc(then, putsOne)
	if at < 0 || then[at].IsTxn() || slices.ContainsFunc(then[at+1:], putsOne) || slices.ContainsFunc(otherwise, putsOne) {
		return nil, errUnsupportedWrite
	}
	w := &write{compares: compares, then: then, otherwise: otherwise, key: string(then[at].KeyBytes()), size: int64(len(then[at].ValueBytes()))}
	w.namespace, w.name = objectOf(strings.TrimPrefix(w.key, root))
	required := slices.IndexFunc(compares, func(compare clientv3.Cmp) bool {
		c := compare.GetCompare()
		return c.Target == etcdserverpb.Compare_MOD && c.Result == etcdserverpb.Compare_EQUAL && len(c.RangeEnd) == 0 && string(c.Key) == w.key
	})
	if required < 0 {
		return nil, fmt.Errorf("write %s: %w", w.key, errUnsupportedWrite)
	}
	w.revision = compares[required].GetCompare().GetModRevision()
	return w, nil
}

// puts reports whether an operation may write an object.
func puts(root string, op clientv3.Op) bool {
	putsOne := func(op clientv3.Op) bool { return puts(root, op) }
	_, then, otherwise := op.Txn()
	return op.IsPut() && strings.HasPrefix(string(op.KeyBytes()), root) || slices.ContainsFunc(then, putsOne) || slices.ContainsFunc(otherwise, putsOne)
}

// objectOf splits the part of a key after the resource: namespace/name, or name.
func objectOf(rest string) (namespace, name string) {
	if namespace, name, ok := strings.Cut(rest, "/"); ok {
		return namespace, name
	}
	return "", rest
}
