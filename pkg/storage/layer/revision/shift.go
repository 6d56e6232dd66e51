// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// shift is the offset of a view. It changes responses in place: they belong to the caller.
type shift int64

// compactedInTxn is a revision that etcd refuses as compacted in the executed part of a
// transaction. A new etcd is compacted at -1.
const compactedInTxn = -2

// compacted reports whether a revision is compacted in the view. Below 1 it means the present,
// or is refused by etcd itself.
func (s shift) compacted(revision int64) bool {
	return 0 < revision && revision <= int64(s)
}

func (s shift) up(revision *int64) {
	if *revision != 0 {
		*revision += int64(s)
	}
}

func (s shift) header(header *etcdserverpb.ResponseHeader) {
	if header != nil {
		s.up(&header.Revision)
	}
}

func (s shift) kv(kv *mvccpb.KeyValue) {
	if kv != nil {
		s.up(&kv.CreateRevision)
		s.up(&kv.ModRevision)
	}
}

func (s shift) kvs(kvs []*mvccpb.KeyValue) {
	for _, kv := range kvs {
		s.kv(kv)
	}
}

func (s shift) rangeResponse(r *etcdserverpb.RangeResponse) {
	if r != nil {
		s.header(r.Header)
		s.kvs(r.Kvs)
	}
}

func (s shift) putResponse(r *etcdserverpb.PutResponse) {
	if r != nil {
		s.header(r.Header)
		s.kv(r.PrevKv)
	}
}

func (s shift) deleteResponse(r *etcdserverpb.DeleteRangeResponse) {
	if r != nil {
		s.header(r.Header)
		s.kvs(r.PrevKvs)
	}
}

func (s shift) txnResponse(r *etcdserverpb.TxnResponse) {
	if r == nil {
		return
	}
	s.header(r.Header)
	for _, response := range r.Responses {
		s.rangeResponse(response.GetResponseRange())
		s.putResponse(response.GetResponsePut())
		s.deleteResponse(response.GetResponseDeleteRange())
		s.txnResponse(response.GetResponseTxn())
	}
}

// rangeOptions returns the options that replace the revisions of a read. The revision to read at
// must not be compacted.
func (s shift) rangeOptions(op clientv3.Op) []clientv3.OpOption {
	var options []clientv3.OpOption
	if revision := op.Rev(); revision > 0 {
		options = append(options, clientv3.WithRev(revision-int64(s)))
	}
	if bound := op.MinModRev(); bound > 0 {
		options = append(options, clientv3.WithMinModRev(s.lowest(bound)))
	}
	if bound := op.MinCreateRev(); bound > 0 {
		options = append(options, clientv3.WithMinCreateRev(s.lowest(bound)))
	}
	if bound := op.MaxModRev(); bound > 0 {
		options = append(options, clientv3.WithMaxModRev(s.highest(bound)))
	}
	if bound := op.MaxCreateRev(); bound > 0 {
		options = append(options, clientv3.WithMaxCreateRev(s.highest(bound)))
	}
	return options
}

// lowest returns a lower bound of revisions. It stays a bound if all keys are above, because
// etcd refuses some requests with bounds.
func (s shift) lowest(bound int64) int64 { return max(1, bound-int64(s)) }

// highest returns an upper bound of revisions, for which 0 would mean none.
func (s shift) highest(bound int64) int64 {
	if s.compacted(bound) {
		return -1
	}
	return bound - int64(s)
}

// read shifts a read at a revision that is not compacted.
func (s shift) read(op clientv3.Op) clientv3.Op {
	for _, option := range s.rangeOptions(op) {
		option(&op)
	}
	return op
}

// inTxn shifts an operation in a transaction.
func (s shift) inTxn(op clientv3.Op) clientv3.Op {
	switch {
	case op.IsTxn():
		return s.txn(op)
	case op.IsGet():
		// In a transaction etcd also refuses revisions below 0 as compacted.
		compacted := s.compacted(op.Rev()) || op.Rev() < 0
		op = s.read(op)
		if compacted {
			clientv3.WithRev(compactedInTxn)(&op)
		}
	}
	return op
}

func (s shift) txn(op clientv3.Op) clientv3.Op {
	compares, then, otherwise := op.Txn()
	return clientv3.OpTxn(s.compares(compares), s.ops(then), s.ops(otherwise))
}

func (s shift) ops(ops []clientv3.Op) []clientv3.Op {
	shifted := make([]clientv3.Op, len(ops))
	for i, op := range ops {
		shifted[i] = s.inTxn(op)
	}
	return shifted
}

func (s shift) compares(compares []clientv3.Cmp) []clientv3.Cmp {
	shifted := make([]clientv3.Cmp, len(compares))
	for i, compare := range compares {
		shifted[i] = compare.Clone()
		s.compare(shifted[i].GetCompare())
	}
	return shifted
}

func (s shift) compare(c *etcdserverpb.Compare) {
	switch c.Target {
	case etcdserverpb.Compare_MOD:
		c.TargetUnion = &etcdserverpb.Compare_ModRevision{ModRevision: s.compared(c.Result, c.GetModRevision())}
	case etcdserverpb.Compare_CREATE:
		c.TargetUnion = &etcdserverpb.Compare_CreateRevision{CreateRevision: s.compared(c.Result, c.GetCreateRevision())}
	}
}

// compared returns the revision to compare with etcd's, which is 0 for a key that does not
// exist, also in the view.
func (s shift) compared(how etcdserverpb.Compare_CompareResult, revision int64) int64 {
	switch {
	case revision <= 0:
		return revision
	case !s.compacted(revision):
		return revision - int64(s)
	}
	// No key has this revision: existing ones are above, missing ones below.
	switch how {
	case etcdserverpb.Compare_GREATER:
		return 0
	case etcdserverpb.Compare_LESS:
		return 1
	default:
		return -1
	}
}
