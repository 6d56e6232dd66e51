// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdkv

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// FailedPart returns the part that ends a stream with an error. Only etcd's client can make one,
// from the answer of a server.
func FailedPart(err error) clientv3.RangeStreamResponse {
	// The stream contains only the error, so this does not block.
	stream, _ := clientv3.NewKVFromKVClient(failingServer{err: err}, nil).GetStream(context.Background(), "-")
	return <-stream
}

// failingServer returns an error from a stream.
type failingServer struct {
	etcdserverpb.KVClient
	etcdserverpb.KV_RangeStreamClient
	err error
}

// RangeStream implements etcdserverpb.KVClient.
func (f failingServer) RangeStream(context.Context, *etcdserverpb.RangeRequest, ...grpc.CallOption) (etcdserverpb.KV_RangeStreamClient, error) {
	return f, nil
}

// Recv implements etcdserverpb.KV_RangeStreamClient.
func (f failingServer) Recv() (*etcdserverpb.RangeStreamResponse, error) { return nil, f.err }
