// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcdtxn collects the parts of an etcd transaction, for layers that need all of
// it before they commit it.
package etcdtxn

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// CommitFunc commits a transaction.
type CommitFunc func(ctx context.Context, compares []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error)

// New returns a transaction that commit receives when it is complete.
func New(ctx context.Context, commit CommitFunc) clientv3.Txn {
	return &txn{ctx: ctx, commit: commit}
}

// IsWrite reports whether an operation changes anything.
func IsWrite(op clientv3.Op) bool { return !op.IsGet() }

type txn struct {
	ctx             context.Context
	commit          CommitFunc
	compares        []clientv3.Cmp
	then, otherwise []clientv3.Op
}

// If implements clientv3.Txn.
func (t *txn) If(compares ...clientv3.Cmp) clientv3.Txn {
	t.compares = append(t.compares, compares...)
	return t
}

// Then implements clientv3.Txn.
func (t *txn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.then = append(t.then, ops...)
	return t
}

// Else implements clientv3.Txn.
func (t *txn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.otherwise = append(t.otherwise, ops...)
	return t
}

// Commit implements clientv3.Txn.
func (t *txn) Commit() (*clientv3.TxnResponse, error) {
	return t.commit(t.ctx, t.compares, t.then, t.otherwise)
}
