// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"bytes"
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/annex-dev/annex/pkg/storage/keys"
	"github.com/annex-dev/annex/pkg/storage/revision"
)

// deletedAtOnce is the number of objects that a transaction deletes.
const deletedAtOnce = 500

// End is a resource in the etcd of a Store.
type End struct {
	// KV and Watcher return etcd's own revisions.
	KV      clientv3.KV
	Watcher clientv3.Watcher
	// Prefix precedes the Store's keys.
	Prefix string
	// Transformer decodes and encodes values of the resource in this Store.
	Transformer value.Transformer
}

// end is an End with the keys of the resource.
type end struct {
	End
	resource          schema.GroupResource
	objects, boundary string // the range of objects
	record            string
	frozen            string
}

func newEnd(e End, resource schema.GroupResource, record string) end {
	objects := keys.Objects(e.Prefix, resource)
	return end{
		End: e, resource: resource, objects: objects, boundary: clientv3.GetPrefixRangeEnd(objects),
		record: record, frozen: keys.Frozen(e.Prefix, resource),
	}
}

// op returns the operation of a change.
func (e end) op(ctx context.Context, c change) (clientv3.Op, error) {
	key := e.objects + c.Key
	if !c.put {
		return clientv3.OpDelete(key), nil
	}
	encoded, err := e.Transformer.TransformToStorage(ctx, c.Value, value.DefaultContext(key))
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("encode object %s of %s: %w", c.Key, e.resource, err)
	}
	return clientv3.OpPut(key, string(encoded)), nil
}

// Equal implements replica. A value that cannot be read is written anew.
func (e end) Equal(ctx context.Context, from, to Object) (bool, error) {
	plain, err := e.Decode(ctx, to)
	return err == nil && bytes.Equal(plain, from.Value), nil
}

// checkDeparture returns a *Refusal if a move cannot take the resource out of the Store. frozenFor is the value of its own
// freeze records.
func (e end) checkDeparture(s stored, uid, frozenFor types.UID) error {
	switch {
	case s.UID != "" && s.UID != uid && s.Phase != Cleaned:
		return refuse(e.resource, ReasonMoving, "the Migration with the UID %s moves it out of the Store", s.UID)
	case s.isFrozen && s.frozenFor != frozenFor:
		return refuse(e.resource, ReasonFrozen, "its objects are frozen for another purpose, such as its return to the main cluster")
	case s.state.Closed && s.UID != uid:
		return refuse(e.resource, ReasonClosed, "the Store does not serve it, because it was moved out of it")
	}
	return nil
}

// close closes the resource for a HostedResource, if it is frozen since a revision. The tombstone ends its
// watches (pkg/storage/freeze).
func (e end) close(ctx context.Context, s stored, frozenAt int64, hosted types.UID) error {
	isFrozen := clientv3.Compare(clientv3.ModRevision(e.frozen), "=", frozenAt)
	return e.doIf(ctx, []clientv3.Cmp{s.isAt(e), s.unchanged(e), isFrozen},
		revision.Close(e.Prefix, e.resource, s.state, hosted), clientv3.OpPut(keys.Tombstone(e.Prefix, e.resource), ""))
}

// removeTombstone returns the revision at which there is none.
func (e end) removeTombstone(ctx context.Context) (int64, error) {
	r, err := e.KV.Delete(ctx, keys.Tombstone(e.Prefix, e.resource))
	if err != nil {
		return 0, fmt.Errorf("remove the tombstone of %s: %w", e.resource, err)
	}
	return r.Header.GetRevision(), nil
}

// giveUp ends a move out of a Store, which takes writes again, with operations, of which one is of the record. Once it is
// closed, giveUp returns ErrSwitched.
func (e end) giveUp(ctx context.Context, s stored, ops ...clientv3.Op) error {
	if s.state.Closed {
		return ErrSwitched
	}
	return e.do(ctx, s, append(ops, clientv3.OpDelete(e.frozen))...)
}

// clear deletes all objects of an end, unless its record changes.
func (e end) clear(ctx context.Context, s stored, limit *rate.Limiter) error {
	for {
		page, err := e.KV.Get(ctx, e.objects, clientv3.WithRange(e.boundary), clientv3.WithKeysOnly(), clientv3.WithLimit(deletedAtOnce))
		if err != nil {
			return fmt.Errorf("read the keys of %s: %w", e.resource, err)
		}
		if len(page.Kvs) == 0 {
			return nil
		}
		if err := atRate(ctx, limit, len(page.Kvs)); err != nil {
			return err
		}
		last := string(page.Kvs[len(page.Kvs)-1].Key)
		if err := e.do(ctx, s, clientv3.OpDelete(e.objects, clientv3.WithRange(last+"\x00"))); err != nil {
			return err
		}
	}
}

// end removes the record of an end, with operations.
func (e end) end(ctx context.Context, s stored, ops ...clientv3.Op) error {
	return e.do(ctx, s, append(ops, clientv3.OpDelete(e.record))...)
}

// do performs operations, unless the record of an end changes. A full etcd performs deletions if there is nothing
// else.
func (e end) do(ctx context.Context, s stored, ops ...clientv3.Op) error {
	return e.doIf(ctx, []clientv3.Cmp{s.isAt(e), s.unchanged(e)}, ops...)
}

// doIf performs operations on conditions, and returns ErrFenced if one does not hold.
func (e end) doIf(ctx context.Context, conditions []clientv3.Cmp, ops ...clientv3.Op) error {
	r, err := e.KV.Txn(ctx).If(conditions...).Then(ops...).Commit()
	switch {
	case err != nil:
		return fmt.Errorf("change the move of %s: %w", e.resource, err)
	case !r.Succeeded:
		return fmt.Errorf("change the move of %s: %w", e.resource, ErrFenced)
	}
	return nil
}
