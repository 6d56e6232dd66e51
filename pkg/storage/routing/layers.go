// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"fmt"
	"path"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc/metadata"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/annex-dev/annex/pkg/storage/compression"
	"github.com/annex-dev/annex/pkg/storage/freeze"
	"github.com/annex-dev/annex/pkg/storage/limits"
	"github.com/annex-dev/annex/pkg/storage/quarantine"
	"github.com/annex-dev/annex/pkg/storage/revision"
)

// layers is what lies between a resource's storage and the etcd of its Store.
type layers struct {
	client      *kubernetes.Client
	compactor   etcd3.Compactor
	transformer value.Transformer
	quarantine  *quarantine.Quarantine
	close       func()
}

// newLayers stacks the layers of one resource in one Store. The order matters, the
// first lies closest to etcd.
func newLayers(ctx context.Context, r recipe, store Store) (*layers, error) {
	shared := store.Client()
	offset, err := revision.Load(ctx, shared.KV, store.Prefix(), r.config.GroupResource)
	if err != nil {
		return nil, fmt.Errorf("finding out about the revisions of %s in Store %s: %w", r.config.GroupResource, store.Name(), err)
	}
	// A client of the resource's own, without a connection: what it is given goes
	// over that of the Store.
	lifetime, cancel := context.WithCancel(context.Background())
	client := clientv3.NewCtxClient(lifetime)
	client.KV, client.Watcher, client.Lease, client.Maintenance = shared.KV, shared.Watcher, shared.Lease, shared.Maintenance

	// 1. A stream of its own, so that no resource waits for the events of another.
	client.Watcher = ownStream(client.Watcher, r.config.GroupResource.String())

	// 2. No writes while the resource is frozen, at any replica.
	target := freeze.Target{KV: client.KV, Prefix: store.Prefix(), Resource: r.config.GroupResource}
	client.KV = target.Guard()

	// 3. The limits of the HostedResource, on what is really stored.
	client.KV = limits.KV(limits.Config{
		KV: client.KV, Prefix: store.Prefix(), Resource: r.config.GroupResource, Usage: store.Usage(), Limits: r.limits,
	})

	// 4. Revisions that go on above what clients saw before a restore.
	ofResource := revision.Client(&kubernetes.Client{Client: client}, offset)

	// 5. Objects that cannot be read are left out, so that others can.
	transformer, release := r.transformer(store)
	unreadable := quarantine.New(quarantine.Config{
		Resource: r.config.GroupResource, Prefix: path.Join("/", store.Prefix(), r.resourcePrefix) + "/", KV: ofResource.KV,
		Transformer: transformer, Codec: r.config.Codec, New: r.newFunc, Registry: r.unreadable,
	})
	ofResource.KV, ofResource.Watcher = unreadable.KV(ofResource.KV), unreadable.Watcher(ofResource.Watcher)

	// Last, as upstream has it: how long etcd took, in the audit log.
	ofResource.KV = etcd3.NewETCDLatencyTracker(ofResource.KV)

	ofResource.Kubernetes = ofResource

	return &layers{
		client:      ofResource,
		compactor:   revision.Compactor(store.Compactor(), offset),
		transformer: transformer,
		quarantine:  unreadable,
		close: func() {
			unreadable.Close()
			release()
			cancel()
		},
	}, nil
}

// transformer is what the values of the resource go through: first they are
// compressed, then encrypted. Ciphertext does not compress.
func (r recipe) transformer(store Store) (transformer value.Transformer, release func()) {
	if r.compression != nil {
		return r.compression.Transformer(compression.Resource{
			GroupResource: r.config.GroupResource,
			Store:         store.Name(), Prefix: store.Prefix(), KV: store.Client().KV,
			Encryption: r.config.Transformer, Wanted: r.compressed,
		})
	}
	if r.config.Transformer != nil {
		return r.config.Transformer, func() {}
	}
	return identity.NewEncryptCheckTransformer(), func() {}
}

// streamKey is the header that tells the streams of a client apart.
const streamKey = "annex-stream"

// streams counts them: two versions of a resource have a stream each.
var streams atomic.Int64

// stream is a Watcher with a stream of its own to etcd. All watches of a client
// with the same headers share a stream, where one waits while etcd sends the events
// of another, and all are told of the progress that one asks for.
type stream struct {
	clientv3.Watcher
	name string
}

func ownStream(watcher clientv3.Watcher, resource string) clientv3.Watcher {
	return stream{Watcher: watcher, name: fmt.Sprintf("%s/%d", resource, streams.Add(1))}
}

// Watch implements clientv3.Watcher. It takes events in parts: etcd sends a watch that
// lags up to a thousand at once, which are more than fit into a message if they are
// large, and the watch would fail again and again.
func (s stream) Watch(ctx context.Context, key string, options ...clientv3.OpOption) clientv3.WatchChan {
	return s.Watcher.Watch(s.context(ctx), key, append(options, clientv3.WithFragment())...)
}

// RequestProgress implements clientv3.Watcher.
func (s stream) RequestProgress(ctx context.Context) error {
	return s.Watcher.RequestProgress(s.context(ctx))
}

// Close leaves the Watcher alone, which others use too.
func (stream) Close() error { return nil }

func (s stream) context(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, streamKey, s.name)
}
