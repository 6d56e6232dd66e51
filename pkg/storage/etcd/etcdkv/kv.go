// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcdkv implements all operations of clientv3.KV by one function, for layers over an
// etcd.
package etcdkv

import (
	"context"
	"slices"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// DoFunc performs an operation. A transaction is one, and complete.
type DoFunc func(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error)

// New returns a KV over another, which streams and compacts.
func New(below clientv3.KV, do DoFunc) clientv3.KV { return &kv{KV: below, do: do} }

// IsWrite reports whether an operation, or any of a transaction, changes anything.
func IsWrite(op clientv3.Op) bool { return !IsRead(op) }

// IsRead reports whether an operation, or all of a transaction, only reads.
func IsRead(op clientv3.Op) bool {
	if !op.IsTxn() {
		return op.IsGet()
	}
	_, then, otherwise := op.Txn()
	return !slices.ContainsFunc(then, IsWrite) && !slices.ContainsFunc(otherwise, IsWrite)
}

// Raise sets the highest known revision to another if that is higher.
func Raise(highest *atomic.Int64, revision int64) {
	for known := highest.Load(); revision > known && !highest.CompareAndSwap(known, revision); {
		known = highest.Load()
	}
}

// unwrap returns the result of the only operation of a transaction.
func unwrap(txn *clientv3.TxnResponse) clientv3.OpResponse {
	for _, inner := range txn.Responses {
		switch {
		case inner.GetResponseRange() != nil:
			read := (*clientv3.GetResponse)(inner.GetResponseRange())
			read.Header = txn.Header
			return read.OpResponse()
		case inner.GetResponsePut() != nil:
			put := (*clientv3.PutResponse)(inner.GetResponsePut())
			put.Header = txn.Header
			return put.OpResponse()
		case inner.GetResponseDeleteRange() != nil:
			deleted := (*clientv3.DeleteResponse)(inner.GetResponseDeleteRange())
			deleted.Header = txn.Header
			return deleted.OpResponse()
		}
	}
	return clientv3.OpResponse{}
}

type kv struct {
	clientv3.KV
	do DoFunc
}

// Get implements clientv3.KV.
func (k *kv) Get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	response, err := k.do(ctx, clientv3.OpGet(key, options...))
	return response.Get(), err
}

// Put implements clientv3.KV.
func (k *kv) Put(ctx context.Context, key, value string, options ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	response, err := k.do(ctx, clientv3.OpPut(key, value, options...))
	return response.Put(), err
}

// Delete implements clientv3.KV.
func (k *kv) Delete(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	response, err := k.do(ctx, clientv3.OpDelete(key, options...))
	return response.Del(), err
}

// Do implements clientv3.KV.
func (k *kv) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	return k.do(ctx, op)
}

// Txn implements clientv3.KV.
func (k *kv) Txn(ctx context.Context) clientv3.Txn { return &txn{ctx: ctx, do: k.do} }

// txn collects the parts of a transaction until it is committed.
type txn struct {
	ctx             context.Context
	do              DoFunc
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
	response, err := t.do(t.ctx, clientv3.OpTxn(t.compares, t.then, t.otherwise))
	return response.Txn(), err
}
