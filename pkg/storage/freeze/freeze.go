// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package freeze stops the requests of a resource in a Store, by conditions that etcd decides, at
// every replica however stale it is.
//
// Writes stop while the resource is frozen: every write is a transaction with the condition that a
// key does not exist. After Freeze has returned nothing is written, and what is read stays current.
// The key stays until Thaw, even if the process that wrote it ends. Another process can read it and
// complete the operation.
//
// All requests stop once the resource is closed (pkg/storage/revision), or once its revisions were
// raised: every request is a transaction with the condition that neither has happened since a Gate
// was made. A watch ends before the first change that comes after the closing. A resource that is
// opened again needs a new Gate.
package freeze

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/storage/keys"
	"github.com/annex-dev/annex/pkg/storage/revision"
)

// Target is a resource in the Store that holds it.
type Target struct {
	// KV is the Store's etcd, with unshifted revisions.
	KV clientv3.KV
	// Prefix begins the keys of the Store.
	Prefix   string
	Resource schema.GroupResource
}

// returning is the value of the key of a freeze, unless it is the UID of a move between Stores.
const returning = ""

func (t Target) key() string { return keys.Frozen(t.Prefix, t.Resource) }

// ErrConditions means that a condition of Freeze or Return does not hold, or that the revisions of the
// resource were raised meanwhile.
var ErrConditions = errors.New("it has changed meanwhile")

// commit performs operations on conditions.
func (t Target) commit(ctx context.Context, conditions []clientv3.Cmp, ops ...clientv3.Op) (revision int64, err error) {
	r, err := t.KV.Txn(ctx).If(conditions...).Then(ops...).Commit()
	if err == nil && !r.Succeeded {
		err = ErrConditions
	}
	if err != nil {
		return 0, err
	}
	return r.Header.GetRevision(), nil
}

// Freeze stops writes on conditions and returns the revision for Thaw. A frozen resource is frozen anew: the
// previous revision no longer thaws it.
func (t Target) Freeze(ctx context.Context, conditions ...clientv3.Cmp) (revision int64, err error) {
	revision, err = t.commit(ctx, conditions, clientv3.OpPut(t.key(), returning))
	if err != nil {
		return 0, fmt.Errorf("freeze %s: %w", t.Resource, err)
	}
	return revision, nil
}

// IsFrozenAt returns the condition that the resource is frozen since a revision that Freeze has returned.
func (t Target) IsFrozenAt(revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(t.key()), "=", revision)
}

// Thaw allows writes again. It does nothing if the resource was frozen anew since revision.
func (t Target) Thaw(ctx context.Context, revision int64) error {
	_, err := t.KV.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(t.key()), "=", revision)).Then(clientv3.OpDelete(t.key())).Commit()
	if err != nil {
		return fmt.Errorf("thaw %s: %w", t.Resource, err)
	}
	return nil
}

// Frozen returns the revision at which the resource was frozen, 0 if it is not, or if it was returned
// since. A freeze by a move between Stores does not count.
func (t Target) Frozen(ctx context.Context) (revision int64, err error) {
	response, err := t.KV.Get(ctx, t.key())
	if err != nil {
		return 0, fmt.Errorf("read whether %s is frozen: %w", t.Resource, err)
	}
	if len(response.Kvs) == 0 || string(response.Kvs[0].Value) != returning {
		return 0, nil
	}
	return response.Kvs[0].ModRevision, nil
}

// Objects counts the objects of the resource, unreadable ones included.
func (t Target) Objects(ctx context.Context) (int64, error) {
	response, err := t.KV.Get(ctx, keys.Objects(t.Prefix, t.Resource), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("count the objects of %s: %w", t.Resource, err)
	}
	return response.Count, nil
}

// Return closes the resource on conditions, for a HostedResource, because the main cluster serves it: it stops
// all requests and ends all watches. Requests get a ReturnedError, also once there are no objects: they are to
// be repeated in the main cluster.
func (t Target) Return(ctx context.Context, hosted types.UID, conditions ...clientv3.Cmp) error {
	state, err := revision.LoadState(ctx, t.KV, t.Prefix, t.Resource)
	if err != nil {
		return err
	}
	if !state.Returned || state.ClosedFor != hosted {
		_, err := t.commit(ctx, append(conditions, revision.Unchanged(t.Prefix, t.Resource, state)),
			revision.Return(t.Prefix, t.Resource, state, hosted),
			clientv3.OpPut(keys.Tombstone(t.Prefix, t.Resource), ""),
			clientv3.OpDelete(t.key()))
		if err != nil {
			return fmt.Errorf("close %s: %w", t.Resource, err)
		}
	}
	// Watches receive its events nevertheless. It is among the objects, and is none.
	if _, err := t.KV.Txn(ctx).Then(clientv3.OpDelete(keys.Tombstone(t.Prefix, t.Resource))).Commit(); err != nil {
		return fmt.Errorf("remove the tombstone of %s: %w", t.Resource, err)
	}
	return nil
}
