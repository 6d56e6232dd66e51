// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/layer/etcdkv"
)

// KV returns the config's KV with limited writes. The caller releases it after its last use.
func KV(config Config) (limited clientv3.KV, release func()) {
	register()
	l := &limiter{enforcer: newEnforcer(config), root: keys.Objects(config.Prefix, config.Resource)}
	return etcdkv.New(config.KV, l.do), countEnforcer(config.Resource.String())
}

type limiter struct {
	*enforcer
	root string
}

// do performs an operation below the limits. The API server puts objects only in transactions.
func (l *limiter) do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	switch {
	case op.IsTxn():
		response, err := l.commitTxn(ctx, op)
		return response.OpResponse(), err
	case puts(l.root, op) && !l.Limits().None():
		return clientv3.OpResponse{}, fmt.Errorf("write %s: %w", op.KeyBytes(), errUnsupportedWrite)
	}
	return l.KV.Do(ctx, op)
}

func (l *limiter) commitTxn(ctx context.Context, op clientv3.Op) (*clientv3.TxnResponse, error) {
	w, writes, err := toWrite(l.root, op)
	switch {
	case !writes, err != nil && l.Limits().None():
		return w.commit(ctx, l.KV)
	case err != nil:
		return nil, err
	}
	return l.commit(ctx, w)
}
