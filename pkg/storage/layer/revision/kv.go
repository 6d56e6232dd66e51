// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
)

// kv is a shifted clientv3.KV.
type kv struct {
	clientv3.KV // performs operations with do
	etcd        clientv3.KV
	shift       shift
}

func newKV(etcd clientv3.KV, shift shift) clientv3.KV {
	k := &kv{etcd: etcd, shift: shift}
	k.KV = etcdkv.New(etcd, k.do)
	return k
}

func (k *kv) do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	switch {
	case op.IsTxn():
		op = k.shift.txn(op)
	case k.shift.compacted(op.Rev()):
		return clientv3.OpResponse{}, rpctypes.ErrCompacted
	case op.IsGet():
		op = k.shift.read(op)
	}
	r, err := k.etcd.Do(ctx, op)
	k.shift.rangeResponse((*etcdserverpb.RangeResponse)(r.Get()))
	k.shift.putResponse((*etcdserverpb.PutResponse)(r.Put()))
	k.shift.deleteResponse((*etcdserverpb.DeleteRangeResponse)(r.Del()))
	k.shift.txnResponse((*etcdserverpb.TxnResponse)(r.Txn()))
	return r, err
}

// GetStream implements clientv3.KV.
func (k *kv) GetStream(ctx context.Context, key string, options ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	op := clientv3.OpGet(key, options...)
	if k.shift.compacted(op.Rev()) {
		return nil, rpctypes.ErrCompacted
	}
	stream, err := k.etcd.GetStream(ctx, key, slices.Concat(options, k.shift.rangeOptions(op))...)
	if err != nil {
		return nil, err
	}
	return etcdkv.Forward(ctx, stream, func(part *clientv3.RangeStreamResponse) error {
		k.shift.rangeResponse(part.RangeResponse)
		return nil
	}, nil), nil
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
