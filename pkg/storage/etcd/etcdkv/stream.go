// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdkv

import (
	"cmp"
	"context"
	"errors"
	"io"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// Forward returns a stream of the parts of another. check may change a part, also one with an error, and its error
// replaces the part and ends the stream. Readers take a stream that ends without an error for complete, so Forward
// adds one if ctx is done, or if the last part, which alone has a header, is missing. ended, if not nil, is called
// with the error at the end.
func Forward(
	ctx context.Context, parts clientv3.GetStreamChan, check func(*clientv3.RangeStreamResponse) error, ended func(error),
) clientv3.GetStreamChan {
	forwarded := make(chan clientv3.RangeStreamResponse, 1)
	go func() {
		defer func() {
			// The sender ignores the context: it blocks until its parts are received.
			for range parts {
			}
		}()
		defer close(forwarded)
		err := forward(ctx, parts, check, forwarded)
		if ended != nil {
			ended(err)
		}
		if err == nil {
			return
		}
		// The reader may have left. In a full channel the error replaces a part that is not needed any more.
		select {
		case <-forwarded:
		default:
		}
		forwarded <- FailedPart(err)
	}()
	return forwarded
}

func forward(
	ctx context.Context, parts clientv3.GetStreamChan, check func(*clientv3.RangeStreamResponse) error, to chan<- clientv3.RangeStreamResponse,
) error {
	complete := false
	for part := range parts {
		if err := cmp.Or(check(&part), part.Err()); err != nil {
			return err
		}
		select {
		case to <- part:
			complete = part.GetHeader() != nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if !complete {
		return errors.New("etcd ended a list before its last part")
	}
	return nil
}

// FailedPart returns the part that ends a stream with an error. Only etcd's client can make one,
// from the answer of a server.
func FailedPart(err error) clientv3.RangeStreamResponse {
	if errors.Is(err, io.EOF) {
		err = errors.New(err.Error()) // the client takes an EOF for the end of a complete stream
	}
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
