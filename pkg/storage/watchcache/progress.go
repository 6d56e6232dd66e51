// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"sync/atomic"
	"time"

	grpcmetadata "google.golang.org/grpc/metadata"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// progressInterval is the shortest time between two requests for the progress of a watch.
const progressInterval = 5 * time.Millisecond

// progress requests the progress of a resource's watch for lists that wait until the watch cache is as new
// as etcd. Upstream's watch cache requests it every 100 ms, so that a list would wait so long whenever
// another resource of the Store was written.
type progress struct {
	// send sends a request to etcd.
	send func(context.Context) error
	// pending is set while a request waits for its turn. It serves all lists that find it.
	pending atomic.Bool
	// sent is the time of the last request. Only the list that has set pending uses it.
	sent time.Time
}

// request requests progress, or leaves that to a request that is not sent yet. An error is not reported:
// the list waits for the next request of the watch cache then.
func (p *progress) request(ctx context.Context) {
	if !p.pending.CompareAndSwap(false, true) {
		return
	}
	if wait := time.Until(p.sent.Add(progressInterval)); wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	p.sent = time.Now()
	p.pending.Store(false)
	_ = p.send(watchContext(ctx))
}

// watchContext has the metadata with which the watch cache watches: etcd's client finds the watch by them.
func watchContext(ctx context.Context) context.Context {
	if utilfeature.DefaultFeatureGate.Enabled(features.SeparateCacheWatchRPC) {
		return grpcmetadata.NewOutgoingContext(ctx, grpcmetadata.Pairs("source", "cache"))
	}
	return ctx
}
