// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/layer/freeze"
	"github.com/annex-dev/annex/pkg/storage/layer/revision"
)

// Exporter takes the steps of a move to another API server at the Store; its user copies the objects. Each step is a transaction that
// fails with ErrFenced once another Exporter has written the record.
type Exporter struct {
	end
	uid, hosted types.UID
	holder      string
	// held is the state of the Store at the take-over, and frozenAt the revision of the freeze.
	held     stored
	frozenAt int64
}

// NewExporter returns an Exporter. Fence is called before its other methods.
func NewExporter(config Config) *Exporter {
	return &Exporter{
		end: newEnd(config.From, config.Resource, keys.Departure(config.From.Prefix, config.Resource)),
		uid: config.UID, hosted: config.HostedResource, holder: string(uuid.NewUUID()),
	}
}

// Fence begins the move, or fences all other Exporters of one that has begun. It returns ErrEnded for one that was
// canceled.
func (e *Exporter) Fence(ctx context.Context) error {
	s, err := e.read(ctx)
	if err != nil {
		return err
	}
	if s.UID == e.uid && s.Phase == Cleaned {
		e.held = s
		return fmt.Errorf("%s: %w", e.resource, ErrEnded)
	}
	if s.UID != "" || !s.state.Returned { // otherwise the move has ended, and nothing must be left of it
		if err := e.checkDeparture(s, e.uid, freeze.Returning); err != nil {
			return err
		}
		s.record = record{UID: e.uid, Holder: e.holder}
		if err := e.write(ctx, &s); err != nil {
			return err
		}
	}
	e.held = s
	now, err := e.read(ctx) // an Exporter before could freeze it until the record was written
	e.frozenAt = now.frozenAt
	return err
}

// Freeze stops writes.
func (e *Exporter) Freeze(ctx context.Context) error {
	r, err := e.transact(ctx, e.held, nil, clientv3.OpPut(e.frozen, freeze.Returning))
	if err == nil {
		e.frozenAt = r.Header.GetRevision()
	}
	return err
}

// Thaw allows writes again, if this Exporter or one before has frozen them.
func (e *Exporter) Thaw(ctx context.Context) error {
	if e.frozenAt == 0 {
		return nil
	}
	_, err := e.transact(ctx, e.held, []clientv3.Cmp{e.isFrozenAt(e.frozenAt)}, clientv3.OpDelete(e.frozen))
	if err == nil {
		e.frozenAt = 0
	}
	return err
}

// Close ends all watches of the frozen resource and lets all requests wait, and returns a resource version that is
// not below any that clients have got. It can be repeated.
func (e *Exporter) Close(ctx context.Context) (highest int64, err error) {
	now, err := e.now(ctx)
	if err == nil && !now.state.Closed {
		err = e.close(ctx, now, e.frozenAt, revision.Close(e.Prefix, e.resource, now.state, e.hosted))
	}
	if err != nil {
		return 0, err
	}
	// Nothing that is later is answered any more.
	closed, err := e.removeTombstone(ctx)
	return closed + now.state.Offset, err
}

// Return lets clients repeat the requests of a resource that is closed: the main cluster serves it. It can be
// repeated.
func (e *Exporter) Return(ctx context.Context) error {
	now, err := e.now(ctx)
	if err == nil && (!now.state.Returned || now.state.ClosedFor != e.hosted) {
		err = e.close(ctx, now, e.frozenAt, revision.Return(e.Prefix, e.resource, now.state, e.hosted), clientv3.OpDelete(e.frozen))
	}
	if err == nil {
		_, err = e.removeTombstone(ctx)
	}
	return err
}

// End deletes the objects of a resource that was returned, without running their finalizers, and the record of
// the move.
func (e *Exporter) End(ctx context.Context) error {
	now, err := e.now(ctx)
	if err == nil && !now.state.Returned {
		err = fmt.Errorf("delete the objects of %s: the Store serves it", e.resource)
	}
	if err == nil {
		err = e.clear(ctx, now, nil)
	}
	if err != nil {
		return err
	}
	return e.do(ctx, now, clientv3.OpDelete(e.record), e.removePairs())
}

// Cancel ends the move of a resource that the Store goes on to serve. Once it was returned, Cancel returns
// ErrSwitched.
func (e *Exporter) Cancel(ctx context.Context) error {
	now, err := e.now(ctx)
	if err != nil {
		return err
	}
	// An Exporter that was replaced must not begin it again. A full etcd takes only deletions, and so no new record.
	ended := record{UID: e.uid, Holder: e.holder, Phase: Cleaned}
	err = e.giveUp(ctx, now, clientv3.OpPut(e.record, ended.encode()), e.removePairs())
	if errors.Is(err, rpctypes.ErrNoSpace) {
		err = e.giveUp(ctx, now, clientv3.OpDelete(e.record), e.removePairs())
	}
	return err
}

// now returns what the Exporter holds, with the present state of the resource.
func (e *Exporter) now(ctx context.Context) (stored, error) {
	now := e.held
	var err error
	now.state, err = revision.LoadState(ctx, e.KV, e.Prefix, e.resource)
	return now, err
}

func (e *Exporter) removePairs() clientv3.Op {
	return clientv3.OpDelete(keys.Pairs(e.Prefix, e.resource), clientv3.WithPrefix())
}

// PutPair records a value for the UID of an object, until the move ends.
func (e *Exporter) PutPair(ctx context.Context, uid types.UID, value []byte) error {
	put := clientv3.OpPut(keys.Pairs(e.Prefix, e.resource)+string(uid), string(value))
	return e.do(ctx, e.held, put)
}

// Pairs calls visit for each value that was recorded.
func (e *Exporter) Pairs(ctx context.Context, visit func(uid types.UID, value []byte) error) error {
	folder := keys.Pairs(e.Prefix, e.resource)
	for page, err := range etcdkv.Pages(ctx, e.KV, folder, clientv3.GetPrefixRangeEnd(folder)) {
		if err != nil {
			return fmt.Errorf("read the pairs: %w", err)
		}
		for _, kv := range page.Kvs {
			uid := strings.TrimPrefix(string(kv.Key), folder)
			if err := visit(types.UID(uid), kv.Value); err != nil {
				return fmt.Errorf("read the pair of %s: %w", uid, err)
			}
		}
	}
	return nil
}
