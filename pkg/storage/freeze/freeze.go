// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package freeze stops all writes of a resource in a Store. While a key in the Store's etcd
// exists, no replica writes the resource, because every write is a transaction with the
// condition that the key does not exist. After Freeze has returned nothing is written, however
// stale a replica is, and what is read stays current.
//
// The key stays until Thaw, even if the process that wrote it ends. Another process can read it
// and complete the operation.
package freeze

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/storage/etcdkv"
	"github.com/annex-dev/annex/pkg/storage/keys"
)

// Target is a resource in the Store that holds it.
type Target struct {
	// KV is the Store's etcd, with unshifted revisions.
	KV clientv3.KV
	// Prefix begins the keys of the Store.
	Prefix   string
	Resource schema.GroupResource
}

func (t Target) key() string { return keys.Frozen(t.Prefix, t.Resource) }

// Freeze stops writes and returns the revision for Thaw. A frozen resource is frozen anew: the
// previous revision no longer thaws it.
func (t Target) Freeze(ctx context.Context) (revision int64, err error) {
	response, err := t.KV.Txn(ctx).Then(clientv3.OpPut(t.key(), "")).Commit()
	if err != nil {
		return 0, fmt.Errorf("freeze %s: %w", t.Resource, err)
	}
	return response.Header.Revision, nil
}

// Thaw allows writes again. It does nothing if the resource was frozen anew since revision.
func (t Target) Thaw(ctx context.Context, revision int64) error {
	_, err := t.KV.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(t.key()), "=", revision)).Then(clientv3.OpDelete(t.key())).Commit()
	if err != nil {
		return fmt.Errorf("thaw %s: %w", t.Resource, err)
	}
	return nil
}

// Frozen returns the revision at which the resource was frozen, 0 if it is not.
func (t Target) Frozen(ctx context.Context) (revision int64, err error) {
	response, err := t.KV.Get(ctx, t.key(), clientv3.WithKeysOnly())
	if err != nil {
		return 0, fmt.Errorf("read whether %s is frozen: %w", t.Resource, err)
	}
	if len(response.Kvs) == 0 {
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

// Guard returns the target's etcd with transactions that fail while the resource is frozen. The
// API server writes objects only in transactions.
func (t Target) Guard() clientv3.KV { return etcdkv.New(t.KV, t.do) }

func (t Target) do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	switch {
	case op.IsTxn():
		return t.commit(ctx, op)
	case op.IsGet():
		return t.KV.Do(ctx, op)
	}
	return clientv3.OpResponse{}, fmt.Errorf("write %s: only transactions can be guarded", t.Resource)
}

// commit adds the condition that the resource is not frozen to transactions that write. If a
// condition does not hold, the additional read shows whether that is the one.
func (t Target) commit(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	compares, then, otherwise := op.Txn()
	if slices.ContainsFunc(otherwise, etcdkv.IsWrite) {
		return clientv3.OpResponse{}, fmt.Errorf("write %s: only what is written if a condition holds can be guarded", t.Resource)
	}
	if !slices.ContainsFunc(then, etcdkv.IsWrite) {
		return t.KV.Do(ctx, op)
	}
	response, err := t.KV.Txn(ctx).
		If(slices.Concat(compares, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(t.key()), "=", 0)})...).
		Then(then...).
		Else(slices.Concat(otherwise, []clientv3.Op{clientv3.OpGet(t.key(), clientv3.WithKeysOnly())})...).
		Commit()
	if err != nil || response.Succeeded {
		return response.OpResponse(), err
	}
	last := len(response.Responses) - 1
	if len(response.Responses[last].GetResponseRange().GetKvs()) > 0 {
		return clientv3.OpResponse{}, frozen(t.Resource)
	}
	response.Responses = response.Responses[:last]
	return response.OpResponse(), nil
}

// frozen returns the error of a write for clients.
func frozen(resource schema.GroupResource) error {
	err := apierrors.NewServiceUnavailable(fmt.Sprintf("annex takes no writes of %s: it gives the resource back to the main cluster", resource))
	err.ErrStatus.Details = &metav1.StatusDetails{Group: resource.Group, Kind: resource.Resource, RetryAfterSeconds: 1}
	return err
}
