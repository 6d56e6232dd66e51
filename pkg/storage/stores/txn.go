// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Txn implements clientv3.KV.
func (k *kv) Txn(ctx context.Context) clientv3.Txn { return &txn{kv: k, ctx: ctx} }

// txn is a transaction behind the gate. Its parts are put together only when it is
// known where it goes.
type txn struct {
	kv        *kv
	ctx       context.Context
	cmps      []clientv3.Cmp
	then, els []clientv3.Op
}

// If implements clientv3.Txn.
func (t *txn) If(cmps ...clientv3.Cmp) clientv3.Txn {
	t.cmps = append(t.cmps, cmps...)
	return t
}

// Then implements clientv3.Txn.
func (t *txn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.then = append(t.then, ops...)
	return t
}

// Else implements clientv3.Txn.
func (t *txn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.els = append(t.els, ops...)
	return t
}

// errWriteOtherwise refuses a transaction that the fence cannot guard: etcd takes the
// branch Else too where annex's mark is missing.
var errWriteOtherwise = errors.New("a transaction on a store may write only if its conditions hold, not otherwise")

// Commit implements clientv3.Txn.
func (t *txn) Commit() (response *clientv3.TxnResponse, err error) {
	if slices.ContainsFunc(t.els, isWrite) {
		return nil, errWriteOtherwise
	}
	ctx, c, err := t.kv.store.pass(t.ctx, "txn")
	if err != nil {
		return nil, err
	}
	defer c.end()
	defer t.kv.store.metrics.observe("txn")(&err)
	cmps, then, els := t.cmps, t.then, t.els
	if c.fence != nil {
		then = c.fence.withCheckpoint(t.then)
		// Where a condition does not hold, it has to be known whether that is the fence.
		cmps, els = slices.Concat(t.cmps, c.fence.compares(c.checkpoint)), slices.Concat(t.els, c.fence.reads())
	}
	response, err = c.connection.client.Txn(ctx).If(cmps...).Then(then...).Else(els...).Commit()
	if err = c.check((*etcdserverpb.TxnResponse)(response).GetHeader(), err); err != nil {
		return nil, err
	}
	if own := len(t.els); c.fence != nil && !response.Succeeded {
		if err = c.checkFence(response.Header, response.Responses[own:]); err != nil {
			return nil, err
		}
		response.Responses = response.Responses[:own]
	}
	if err = c.checkRevision(response.Header); err != nil {
		return nil, err
	}
	if own := len(t.then); response.Succeeded && len(then) > own {
		c.fence.wroteCheckpoint(response.Header)
		response.Responses = response.Responses[:own]
	}
	return response, nil
}

func isWrite(op clientv3.Op) bool { return !op.IsGet() }
