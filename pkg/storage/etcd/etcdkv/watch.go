// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdkv

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Watch returns a channel with what run sends, which is closed when run returns. send returns false once ctx is done.
func Watch[T any](ctx context.Context, run func(send func(T) bool)) <-chan T {
	sent := make(chan T)
	go func() {
		defer close(sent)
		run(func(response T) bool {
			select {
			case sent <- response:
				return true
			case <-ctx.Done():
				return false
			}
		})
	}()
	return sent
}

// FailedWatch returns the response that ends a watch with an error.
func FailedWatch(err error) clientv3.WatchResponse {
	return clientv3.WatchResponse{Canceled: true, CancelReason: err.Error()}
}
