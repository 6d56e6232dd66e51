// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"fmt"
	"slices"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
)

// fence is the condition on which etcd performs a request: it has the data that annex knows,
// with all of their history. etcd compares it in the transaction of the request, so no request
// reads other data, not even immediately after these were replaced.
type fence struct {
	markKey string
	// mark is the value of the mark.
	mark string
	// checkpointKey is the key of this process's checkpoint.
	checkpointKey string
	// checkpoint is the revision of this process's last write of the key; 0 before the first.
	checkpoint atomic.Int64
}

func newFence(prefix, mark, process string) *fence {
	return &fence{markKey: keys.Store(prefix), mark: mark, checkpointKey: keys.Checkpoints(prefix) + process}
}

// compares returns the conditions, with the checkpoint from when the request began.
func (f *fence) compares(checkpoint int64) []clientv3.Cmp {
	compares := []clientv3.Cmp{clientv3.Compare(clientv3.Value(f.markKey), "=", f.mark)}
	if checkpoint > 0 {
		// Only this process writes it, perhaps meanwhile.
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(f.checkpointKey), ">", checkpoint-1))
	}
	return compares
}

// puts reports whether an operation puts a key of the Store. It then writes the checkpoint too: an etcd without that
// has lost writes. A full etcd accepts deletes but no puts.
func puts(op clientv3.Op) bool {
	_, then, _ := op.Txn()
	return op.IsPut() || slices.ContainsFunc(then, clientv3.Op.IsPut)
}

func (f *fence) putCheckpoint() clientv3.Op { return clientv3.OpPut(f.checkpointKey, "") }

// wroteCheckpoint records the revision of a written checkpoint.
func (f *fence) wroteCheckpoint(header *etcdserverpb.ResponseHeader) {
	etcdkv.Raise(&f.checkpoint, header.GetRevision())
}

// reads returns the operations whose results show why the conditions do not hold.
func (f *fence) reads() []clientv3.Op {
	return []clientv3.Op{clientv3.OpGet(f.markKey), clientv3.OpGet(f.checkpointKey, clientv3.WithKeysOnly())}
}

// checkFence trips the breaker and returns the reason if the results of reads show that the
// conditions do not hold.
func (c *call) checkFence(header *etcdserverpb.ResponseHeader, answers []*etcdserverpb.ResponseOp) error {
	mark, checkpoint := answers[0].GetResponseRange().GetKvs(), answers[1].GetResponseRange().GetKvs()
	switch {
	case len(mark) != 1 || string(mark[0].Value) != c.fence.mark:
		return c.store.trip(c.breaker, ReasonDataReplaced, dataReplaced)
	case header.GetRevision() < c.floor:
		return c.store.trip(c.breaker, ReasonRolledBack, rolledBack(c.floor))
	case c.checkpoint > 0 && (len(checkpoint) != 1 || checkpoint[0].ModRevision < c.checkpoint):
		return c.store.trip(c.breaker, ReasonDiverged, diverged)
	}
	return nil
}

// checkRevision trips the breaker if the revision of an answer is lower than the one known
// before the request. All requests are linearizable, so an etcd that kept its data never returns
// that.
func (c *call) checkRevision(header *etcdserverpb.ResponseHeader) error {
	if header.GetRevision() < c.floor {
		return c.store.trip(c.breaker, ReasonRolledBack, rolledBack(c.floor))
	}
	etcdkv.Raise(&c.store.highest, header.GetRevision())
	return nil
}

const (
	dataReplaced = "its etcd cluster no longer has the mark that annex left there: its data were replaced or removed"
	diverged     = "its etcd cluster has another history than the one that annex knows: it is a copy, or was restored from one"
)

func rolledBack(highest int64) string {
	return fmt.Sprintf("its etcd cluster was at revision %d and is at an earlier one: it was restored from a copy, or lost data", highest)
}
