// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/annex-dev/annex/pkg/storage/etcdtxn"
	"github.com/annex-dev/annex/pkg/storage/keys"
)

// KV returns the config's KV with limited writes. The caller releases it after its last use.
func KV(config Config) (limited clientv3.KV, release func()) {
	register()
	return &kv{KV: config.KV, enforcer: newEnforcer(config), root: keys.Objects(config.Prefix, config.Resource)}, countEnforcer(config.Resource.String())
}

type kv struct {
	clientv3.KV
	enforcer *enforcer
	root     string
}

// Put implements clientv3.KV. The API server does not use it for objects.
func (k *kv) Put(ctx context.Context, key, value string, options ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	if err := k.check(key); err != nil {
		return nil, err
	}
	return k.KV.Put(ctx, key, value, options...)
}

func (k *kv) check(key string) error {
	if strings.HasPrefix(key, k.root) && !k.enforcer.Limits().None() {
		return fmt.Errorf("write %s: %w", key, errUnsupportedWrite)
	}
	return nil
}

// Do implements clientv3.KV.
func (k *kv) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	switch {
	case op.IsPut():
		if err := k.check(string(op.KeyBytes())); err != nil {
			return clientv3.OpResponse{}, err
		}
	case op.IsTxn():
		compares, then, otherwise := op.Txn()
		r, err := k.Txn(ctx).If(compares...).Then(then...).Else(otherwise...).Commit()
		if err != nil {
			return clientv3.OpResponse{}, err
		}
		return r.OpResponse(), nil
	}
	return k.KV.Do(ctx, op)
}

// Txn implements clientv3.KV.
func (k *kv) Txn(ctx context.Context) clientv3.Txn { return etcdtxn.New(ctx, k.commit) }

func (k *kv) commit(ctx context.Context, compares []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	w, writes, err := toWrite(k.root, compares, then, otherwise)
	switch {
	case !writes, err != nil && k.enforcer.Limits().None():
		return w.commit(ctx, k.KV)
	case err != nil:
		return nil, err
	}
	return k.enforcer.commit(ctx, w)
}
