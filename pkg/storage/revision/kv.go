// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// kv is a shifted clientv3.KV.
type kv struct {
	etcd  clientv3.KV
	shift shift
}

// Put implements clientv3.KV.
func (k *kv) Put(ctx context.Context, key, value string, options ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	r, err := k.etcd.Put(ctx, key, value, options...)
	k.shift.putResponse((*etcdserverpb.PutResponse)(r))
	return r, err
}

// Get implements clientv3.KV.
func (k *kv) Get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	options, err := k.rangeOptions(key, options)
	if err != nil {
		return nil, err
	}
	r, err := k.etcd.Get(ctx, key, options...)
	k.shift.rangeResponse((*etcdserverpb.RangeResponse)(r))
	return r, err
}

// GetStream implements clientv3.KV.
func (k *kv) GetStream(ctx context.Context, key string, options ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	options, err := k.rangeOptions(key, options)
	if err != nil {
		return nil, err
	}
	stream, err := k.etcd.GetStream(ctx, key, options...)
	if err != nil {
		return nil, err
	}
	shifted := make(chan clientv3.RangeStreamResponse)
	go func() {
		defer close(shifted)
		for r := range stream {
			k.shift.rangeResponse(r.RangeResponse)
			select {
			case shifted <- r:
			case <-ctx.Done():
				// The sender ignores the context.
				for range stream {
				}
				return
			}
		}
	}()
	return shifted, nil
}

func (k *kv) rangeOptions(key string, options []clientv3.OpOption) ([]clientv3.OpOption, error) {
	op := clientv3.OpGet(key, options...)
	if k.shift.compacted(op.Rev()) {
		return nil, rpctypes.ErrCompacted
	}
	if replaced := k.shift.rangeOptions(op); replaced != nil {
		return append(options[:len(options):len(options)], replaced...), nil
	}
	return options, nil
}

// Delete implements clientv3.KV.
func (k *kv) Delete(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	r, err := k.etcd.Delete(ctx, key, options...)
	k.shift.deleteResponse((*etcdserverpb.DeleteRangeResponse)(r))
	return r, err
}

// Compact implements clientv3.KV. Revisions up to the first above the offset count as compacted.
func (k *kv) Compact(ctx context.Context, revision int64, options ...clientv3.CompactOption) (*clientv3.CompactResponse, error) {
	if revision <= int64(k.shift)+1 {
		return nil, rpctypes.ErrCompacted
	}
	r, err := k.etcd.Compact(ctx, revision-int64(k.shift), options...)
	if r != nil {
		k.shift.header(r.Header)
	}
	return r, err
}

// Do implements clientv3.KV.
func (k *kv) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	if op.IsGet() && k.shift.compacted(op.Rev()) {
		return clientv3.OpResponse{}, rpctypes.ErrCompacted
	}
	r, err := k.etcd.Do(ctx, k.shifted(op))
	k.shift.rangeResponse((*etcdserverpb.RangeResponse)(r.Get()))
	k.shift.putResponse((*etcdserverpb.PutResponse)(r.Put()))
	k.shift.deleteResponse((*etcdserverpb.DeleteRangeResponse)(r.Del()))
	k.shift.txnResponse((*etcdserverpb.TxnResponse)(r.Txn()))
	return r, err
}

func (k *kv) shifted(op clientv3.Op) clientv3.Op {
	switch {
	case op.IsTxn():
		return k.shift.txn(op)
	case op.IsGet():
		return k.shift.read(op)
	default:
		return op
	}
}

// Txn implements clientv3.KV.
func (k *kv) Txn(ctx context.Context) clientv3.Txn {
	return &txn{etcd: k.etcd.Txn(ctx), shift: k.shift}
}

// txn is a shifted clientv3.Txn.
type txn struct {
	etcd  clientv3.Txn
	shift shift
}

// If implements clientv3.Txn.
func (t *txn) If(compares ...clientv3.Cmp) clientv3.Txn {
	t.etcd = t.etcd.If(t.shift.compares(compares)...)
	return t
}

// Then implements clientv3.Txn.
func (t *txn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.etcd = t.etcd.Then(t.shift.ops(ops)...)
	return t
}

// Else implements clientv3.Txn.
func (t *txn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.etcd = t.etcd.Else(t.shift.ops(ops)...)
	return t
}

// Commit implements clientv3.Txn.
func (t *txn) Commit() (*clientv3.TxnResponse, error) {
	r, err := t.etcd.Commit()
	t.shift.txnResponse((*etcdserverpb.TxnResponse)(r))
	return r, err
}
