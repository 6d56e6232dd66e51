// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package freeze

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/layer/revision"
)

// Gate passes requests of a resource to the etcd of its Store until the resource is closed there. The
// history from before it was opened counts as compacted: it has a part of the objects, or those that
// were moved away.
type Gate struct {
	Target
	state revision.State

	changedOnce sync.Once
	changed     chan struct{}
	// verified is the highest revision at which the state was found to be unchanged.
	verified atomic.Int64
}

// NewGate returns a Gate for a resource that is open, with the state that was read.
func NewGate(target Target, state revision.State) *Gate {
	return &Gate{Target: target, state: state, changed: make(chan struct{})}
}

// Changed is closed when a request or a watch has found that the resource was closed or that its
// revisions were raised. The Gate then refuses all requests.
func (g *Gate) Changed() <-chan struct{} { return g.changed }

// KV returns the target's etcd behind the Gate. The API server writes objects only in transactions.
func (g *Gate) KV() clientv3.KV { return &gatedKV{KV: etcdkv.New(g.Target.KV, g.do), gate: g} }

type gatedKV struct {
	clientv3.KV
	gate *Gate
}

func (g *Gate) do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	switch {
	case op.IsGet() && g.isBefore(op):
		return clientv3.OpResponse{}, rpctypes.ErrCompacted
	case !op.IsGet() && !op.IsTxn():
		return clientv3.OpResponse{}, fmt.Errorf("write %s: only transactions can be guarded", g.Resource)
	}
	frozen := keys.Frozen(g.Prefix, g.Resource)
	guard := etcdkv.Guard{
		Conditions: []clientv3.Cmp{revision.Unchanged(g.Prefix, g.Resource, g.state)},
		Reads:      []clientv3.Op{clientv3.OpGet(keys.Revision(g.Prefix, g.Resource)), clientv3.OpGet(frozen)},
	}
	if !etcdkv.IsRead(op) {
		guard.Conditions = append(guard.Conditions, clientv3.Compare(clientv3.CreateRevision(frozen), "=", 0))
	}
	perform := func(txn clientv3.Op) (clientv3.OpResponse, error) { return g.Target.KV.Do(ctx, txn) }
	return guard.Do(op, perform, func(txn *clientv3.TxnResponse, reasons []*etcdserverpb.ResponseOp) error {
		if !txn.Succeeded {
			if err := g.check(reasons); err != nil {
				return err
			}
		}
		etcdkv.Raise(&g.verified, txn.Header.GetRevision())
		return nil
	})
}

// isBefore reports whether a read is of the time before the resource was opened.
func (g *Gate) isBefore(op clientv3.Op) bool { return 0 < op.Rev() && op.Rev() < g.state.ModRevision }

// check returns why a condition of a request did not hold, by the state and the freeze that were read.
func (g *Gate) check(reasons []*etcdserverpb.ResponseOp) error {
	now, err := revision.Of(reasons[0].GetResponseRange().GetKvs())
	if err != nil {
		return err
	}
	if now.ModRevision != g.state.ModRevision {
		g.changedOnce.Do(func() { close(g.changed) })
		return Refusal(g.Resource, now)
	}
	if freeze := reasons[1].GetResponseRange().GetKvs(); len(freeze) > 0 {
		if string(freeze[0].Value) == Returning {
			return &HeldError{refused{g.Resource, "is returning %s to the main cluster"}}
		}
		return Refusal(g.Resource, now)
	}
	return nil
}

// verify checks the state at the present revision.
func (g *Gate) verify(ctx context.Context) error {
	_, err := g.do(ctx, clientv3.OpTxn(nil, nil, nil))
	if err == nil || isRefused(err) {
		return err
	}
	return fmt.Errorf("read whether %s is open: %w", g.Resource, err)
}

// GetStream implements clientv3.KV. The last part, without which the others are not used, is sent
// after the resource was found to be open.
func (k *gatedKV) GetStream(ctx context.Context, key string, options ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	if k.gate.isBefore(clientv3.OpGet(key, options...)) {
		return nil, rpctypes.ErrCompacted
	}
	stream, err := k.KV.GetStream(ctx, key, options...)
	if err != nil {
		return nil, err
	}
	return etcdkv.Forward(ctx, stream, func(part *clientv3.RangeStreamResponse) error {
		if part.GetHeader() == nil {
			return nil
		}
		return k.gate.verify(ctx)
	}, nil), nil
}
