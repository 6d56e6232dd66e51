// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdkv

import (
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrWriteOtherwise refuses a transaction that a Guard cannot guard: etcd also executes Else if a condition of the
// Guard does not hold.
var ErrWriteOtherwise = errors.New("a transaction may write only if its conditions hold, not otherwise")

// Guard adds conditions to operations.
type Guard struct {
	Conditions []clientv3.Cmp
	// Reads show which condition does not hold.
	Reads []clientv3.Op
	// Adds are performed with the operation.
	Adds []clientv3.Op
}

// Do performs an operation in a transaction of its own, by perform. check decides by the result. If a condition of
// the Guard or of the operation does not hold, check gets the results of the reads, too.
func (g Guard) Do(
	op clientv3.Op, perform func(txn clientv3.Op) (clientv3.OpResponse, error),
	check func(txn *clientv3.TxnResponse, reads []*etcdserverpb.ResponseOp) error,
) (clientv3.OpResponse, error) {
	compares, then, otherwise := op.Txn()
	if slices.ContainsFunc(otherwise, IsWrite) {
		return clientv3.OpResponse{}, ErrWriteOtherwise
	}
	if !op.IsTxn() {
		then = []clientv3.Op{op}
	}
	response, err := perform(clientv3.OpTxn(
		slices.Concat(compares, g.Conditions), slices.Concat(then, g.Adds), slices.Concat(otherwise, g.Reads)))
	if err != nil {
		return clientv3.OpResponse{}, err
	}
	txn, own := response.Txn(), len(then)
	var reads []*etcdserverpb.ResponseOp
	if !txn.Succeeded {
		own = len(otherwise)
		reads = txn.Responses[own:]
	}
	if err := check(txn, reads); err != nil {
		return clientv3.OpResponse{}, err
	}
	txn.Responses = txn.Responses[:own]
	if op.IsTxn() {
		return response, nil
	}
	return unwrap(txn), nil
}
