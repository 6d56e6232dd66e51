// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/annex-dev/annex/pkg/storage/compression"
	"github.com/annex-dev/annex/pkg/storage/freeze"
	"github.com/annex-dev/annex/pkg/storage/limits"
	"github.com/annex-dev/annex/pkg/storage/revision"
)

// layers is what lies between a resource's storage and the etcd of its Store.
type layers struct {
	client      *kubernetes.Client
	compactor   etcd3.Compactor
	transformer value.Transformer
	close       func()
}

// newLayers stacks the layers of one resource in one Store. The order matters, the
// first lies closest to etcd.
func newLayers(ctx context.Context, r storageConfig, store Store) (*layers, error) {
	shared := store.Client()
	offset, err := revision.Load(ctx, shared.KV, store.Prefix(), r.config.GroupResource)
	if err != nil {
		return nil, fmt.Errorf("find out about the revisions of %s in Store %s: %w", r.config.GroupResource, store.Name(), err)
	}
	// A client of the resource's own, without a connection: what it is given goes
	// over that of the Store.
	lifetime, cancel := context.WithCancel(context.Background())
	client := clientv3.NewCtxClient(lifetime)
	client.KV, client.Watcher, client.Lease, client.Maintenance = shared.KV, shared.Watcher, shared.Lease, shared.Maintenance

	// 1. A stream of its own, so that no resource waits for the events of another.
	client.Watcher = newStream(client.Watcher, client.KV, r.config.GroupResource.String())

	// 2. No writes while the resource is frozen, at any replica.
	target := freeze.Target{KV: client.KV, Prefix: store.Prefix(), Resource: r.config.GroupResource}
	client.KV = target.Guard()

	// 3. The limits of the HostedResource, on what is really stored.
	var forgetLimits func()
	client.KV, forgetLimits = limits.KV(limits.Config{
		KV: client.KV, Prefix: store.Prefix(), Resource: r.config.GroupResource, Usage: store.Usage(), Limits: r.limits,
	})

	// 4. Revisions that go on above what clients saw before a restore.
	ofResource := revision.Client(&kubernetes.Client{Client: client}, offset)

	// Last, as upstream has it: how long etcd took, in the audit log.
	ofResource.KV = etcd3.NewETCDLatencyTracker(ofResource.KV)

	ofResource.Kubernetes = ofResource

	transformer, release := r.transformer(store)
	return &layers{
		client:      ofResource,
		compactor:   revision.Compactor(store.Compactor(), offset),
		transformer: transformer,
		close: func() {
			release()
			forgetLimits()
			cancel()
		},
	}, nil
}

// transformer is what the values of the resource go through: first they are
// compressed, then encrypted. Ciphertext does not compress.
func (r storageConfig) transformer(store Store) (transformer value.Transformer, release func()) {
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
