// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/annex-dev/annex/pkg/storage/etcdtxn"
)

// Txn implements clientv3.KV. It is sent as a whole when it is committed.
func (k *kv) Txn(ctx context.Context) clientv3.Txn { return etcdtxn.New(ctx, k.commit) }

// errWriteOtherwise refuses a transaction that the fence cannot guard: etcd also executes Else
// when annex's mark is missing.
var errWriteOtherwise = errors.New("a transaction on a store may write only if its conditions hold, not otherwise")

func (k *kv) commit(ctx context.Context, compares []clientv3.Cmp, then, otherwise []clientv3.Op) (response *clientv3.TxnResponse, err error) {
	if slices.ContainsFunc(otherwise, etcdtxn.IsWrite) {
		return nil, errWriteOtherwise
	}
	ctx, c, err := k.store.admit(ctx, "txn")
	if err != nil {
		return nil, err
	}
	defer c.end()
	defer k.store.metrics.observe("txn")(&err)
	all, cmps, els := then, compares, otherwise
	if c.fence != nil {
		all = c.fence.withCheckpoint(then)
		// If a condition does not hold, these reads show whether it is the fence.
		cmps, els = slices.Concat(compares, c.fence.compares(c.checkpoint)), slices.Concat(otherwise, c.fence.reads())
	}
	response, err = c.connection.client.Txn(ctx).If(cmps...).Then(all...).Else(els...).Commit()
	if err = c.check((*etcdserverpb.TxnResponse)(response).GetHeader(), err); err != nil {
		return nil, err
	}
	if own := len(otherwise); c.fence != nil && !response.Succeeded {
		if err = c.checkFence(response.Header, response.Responses[own:]); err != nil {
			return nil, err
		}
		response.Responses = response.Responses[:own]
	}
	if err = c.checkRevision(response.Header); err != nil {
		return nil, err
	}
	if own := len(then); response.Succeeded && len(all) > own {
		c.fence.wroteCheckpoint(response.Header)
		response.Responses = response.Responses[:own]
	}
	return response, nil
}
