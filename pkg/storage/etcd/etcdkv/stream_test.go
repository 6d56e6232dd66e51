// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdkv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestForward reads streams that end early or with an error: none may look complete.
func TestForward(t *testing.T) {
	t.Parallel()
	part := clientv3.RangeStreamResponse{RangeResponse: &etcdserverpb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Key: []byte("a")}}}}
	last := clientv3.RangeStreamResponse{RangeResponse: &etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{Revision: 7}}}
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		parts []clientv3.RangeStreamResponse
		check error
		err   string
	}{
		"complete":            {parts: []clientv3.RangeStreamResponse{part, part, last}},
		"without a last part": {parts: []clientv3.RangeStreamResponse{part, part}, err: "etcd ended a list before its last part"},
		"empty":               {err: "etcd ended a list before its last part"},
		"failed":              {parts: []clientv3.RangeStreamResponse{part, FailedPart(refused)}, err: "refused"},
		"failed with an EOF":  {parts: []clientv3.RangeStreamResponse{part, FailedPart(fmt.Errorf("read: %w", io.EOF))}, err: "read: EOF"},
		"refused":             {parts: []clientv3.RangeStreamResponse{last}, check: refused, err: "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parts := make(chan clientv3.RangeStreamResponse, len(test.parts))
			for _, part := range test.parts {
				parts <- part
			}
			close(parts)
			ended := make(chan error, 1)
			check := func(*clientv3.RangeStreamResponse) error { return test.check }
			var err error
			for part := range Forward(t.Context(), parts, check, func(err error) { ended <- err }) {
				err = part.Err()
			}
			for _, err := range []error{err, <-ended} {
				if got := fmt.Sprint(err); got != test.err && (err != nil || test.err != "") {
					t.Errorf("the stream ended with %q, want %q", got, test.err)
				}
			}
		})
	}
}

// TestForwardCanceled cancels a stream whose reader lags, and one whose reader has left.
func TestForwardCanceled(t *testing.T) {
	t.Parallel()
	for _, reads := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		parts, ended := make(chan clientv3.RangeStreamResponse), make(chan error)
		check := func(*clientv3.RangeStreamResponse) error { return nil }
		forwarded := Forward(ctx, parts, check, func(err error) { ended <- err })
		for range 2 { // the second waits for the reader
			parts <- clientv3.RangeStreamResponse{RangeResponse: &etcdserverpb.RangeResponse{}}
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
		close(parts)
		if !reads {
			continue
		}
		var err error
		for part := range forwarded {
			err = part.Err()
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the reader received %v at the end", err)
		}
	}
}
