// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc/codes"

	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
)

// newClient returns the client that stays the same while the Store exists. It has KV, Watcher
// and Lease, which storage needs. Its list of endpoints is empty, so that upstream's
// process-wide check of features sends no requests: Stores that would fail it are refused.
func newClient(ctx context.Context, s *Store) *kubernetes.Client {
	client := &kubernetes.Client{Client: clientv3.NewCtxClient(ctx)}
	client.KV = newKV(s)
	client.Watcher = &watcher{s}
	client.Lease = &lease{store: s}
	client.Kubernetes = client
	return client
}

// kv is a KV behind the breaker of a Store.
type kv struct {
	clientv3.KV // performs operations with do
	store       *Store
}

func newKV(s *Store) *kv {
	k := &kv{store: s}
	k.KV = etcdkv.New(nil, k.do)
	return k
}

// do performs an operation, with the fence if there is one.
func (k *kv) do(ctx context.Context, op clientv3.Op) (response clientv3.OpResponse, err error) {
	if err := k.store.checkDisk(op); err != nil {
		k.store.metrics.refused(nameOf(op))
		return clientv3.OpResponse{}, err
	}
	ctx, c, err := k.store.admit(ctx, nameOf(op))
	if err != nil {
		return clientv3.OpResponse{}, err
	}
	defer c.end()
	defer k.store.metrics.observe(nameOf(op))(&err)
	if c.fence == nil {
		response, err = c.connection.client.Do(ctx, op)
		if err = c.check(headerOf(response), err); err == nil {
			err = c.checkRevision(headerOf(response))
		}
		return response, err
	}
	return c.guarded(ctx, op)
}

// guarded performs an operation in a transaction with the fence.
func (c *call) guarded(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	guard := etcdkv.Guard{Conditions: c.fence.compares(c.checkpoint), Reads: c.fence.reads()}
	if puts(op) {
		guard.Adds = []clientv3.Op{c.fence.putCheckpoint()}
	}
	perform := func(txn clientv3.Op) (clientv3.OpResponse, error) { return c.perform(ctx, txn, etcdkv.IsRead(op)) }
	return guard.Do(op, perform, func(txn *clientv3.TxnResponse, reads []*etcdserverpb.ResponseOp) error {
		if !txn.Succeeded {
			if err := c.checkFence(txn.Header, reads); err != nil {
				return err
			}
		}
		if err := c.checkRevision(txn.Header); err != nil {
			return err
		}
		if txn.Succeeded && guard.Adds != nil {
			c.fence.wroteCheckpoint(txn.Header)
		}
		return nil
	})
}

// nameOf returns the name of an operation in metrics. A transaction that only reads is a get with
// conditions.
func nameOf(op clientv3.Op) string {
	switch {
	case etcdkv.IsRead(op):
		return "get"
	case op.IsPut():
		return "put"
	case op.IsDelete():
		return "delete"
	}
	return "txn"
}

const (
	// etcd's client retries reads with these values while the cluster elects a leader, but no
	// transactions.
	readAttempts = 100
	readPause    = 25 * time.Millisecond
)

// perform performs a transaction. One that only reads is retried while no member can answer.
func (c *call) perform(ctx context.Context, op clientv3.Op, reads bool) (clientv3.OpResponse, error) {
	for attempt := 1; ; attempt++ {
		response, err := c.connection.client.Do(ctx, op)
		if reads && err != nil && codeOf(err) == codes.Unavailable && attempt < readAttempts && ctx.Err() == nil {
			pause(ctx, readPause, nil)
			continue
		}
		return response, c.check(headerOf(response), err)
	}
}

// headerOf returns the header of a response, nil without one.
func headerOf(response clientv3.OpResponse) *etcdserverpb.ResponseHeader {
	switch {
	case response.Get() != nil:
		return response.Get().Header
	case response.Put() != nil:
		return response.Put().Header
	case response.Del() != nil:
		return response.Del().Header
	case response.Txn() != nil:
		return response.Txn().Header
	}
	return nil
}

// GetStream implements clientv3.KV. The last part, without which the others are not used, is
// sent after the fence was found to hold.
func (k *kv) GetStream(ctx context.Context, key string, opts ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	bound, c, err := k.store.admit(ctx, "stream")
	if err != nil {
		return nil, err
	}
	bound, cancel := context.WithCancel(bound)
	observed := k.store.metrics.observe("stream")
	stream, err := c.connection.client.GetStream(bound, key, opts...)
	if err != nil {
		defer c.end()
		cancel()
		err = c.check(nil, err)
		observed(&err)
		return nil, err
	}
	check := func(part *clientv3.RangeStreamResponse) error { return c.checkPart(bound, part) }
	return etcdkv.Forward(ctx, stream, check, func(err error) {
		observed(&err)
		cancel()
		c.end()
	}), nil
}

// checkPart checks a part of a stream. Only the last has a header.
func (c *call) checkPart(ctx context.Context, part *clientv3.RangeStreamResponse) error {
	if err := part.Err(); err != nil {
		return c.check(nil, err)
	}
	header := part.GetHeader()
	if header == nil {
		return nil
	}
	if err := c.check(header, nil); err != nil {
		return err
	}
	if err := c.verify(ctx); err != nil {
		return err
	}
	return c.checkRevision(header)
}

// verify checks the fence.
func (c *call) verify(ctx context.Context) error {
	if c.fence == nil {
		return nil
	}
	_, err := c.guarded(ctx, clientv3.OpTxn(nil, nil, nil))
	return err
}

// Compact implements clientv3.KV.
func (k *kv) Compact(ctx context.Context, revision int64, opts ...clientv3.CompactOption) (*clientv3.CompactResponse, error) {
	ctx, c, err := k.store.admit(ctx, "compact")
	if err != nil {
		return nil, err
	}
	defer c.end()
	response, err := c.connection.client.Compact(ctx, revision, opts...)
	if err := c.check((*etcdserverpb.CompactionResponse)(response).GetHeader(), err); err != nil {
		return nil, err
	}
	return response, nil
}
