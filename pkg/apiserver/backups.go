// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	storagevalue "k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/backup"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/layer/compression"
	"github.com/annex-dev/annex/pkg/storage/layer/revision"
	"github.com/annex-dev/annex/pkg/storage/routing"
	"github.com/annex-dev/annex/pkg/version"
)

// backups provides the etcds that backups are read from and restored to.
type backups struct {
	store        func(name string) (routing.Store, error)
	transformers storagevalue.ResourceTransformers
	// compress selects whether restored values are compressed.
	compress bool
}

func (c CompletedConfig) newBackups() backups {
	return backups{
		store:        c.extra.Store,
		transformers: c.generic.ResourceTransformers,
		compress:     c.extra.StorageLayers.DefaultCompression == hostingv1alpha1.CompressionZstd,
	}
}

// Source implements the backend of the endpoints.
func (b backups) Source(name string) (*backup.Source, error) {
	store, err := b.available(name)
	if err != nil {
		return nil, err
	}
	return &backup.Source{
		Store: name, KV: store.Client().KV, Prefix: store.Prefix(), CreatedBy: version.Annex(), Now: time.Now,
		Decoder: func(resource schema.GroupResource) storagevalue.Transformer { return b.stored(name, store, resource) },
		Offset: func(ctx context.Context, resource *schema.GroupResource) (int64, error) {
			if resource == nil {
				return revision.HighestOffset(ctx, store.Client().KV, store.Prefix())
			}
			return revision.Load(ctx, store.Client().KV, store.Prefix(), *resource)
		},
	}, nil
}

// Target implements the backend of the endpoints.
func (b backups) Target(name string) (*backup.Target, error) {
	store, err := b.available(name)
	if err != nil {
		return nil, err
	}
	return &backup.Target{
		KV: store.Client().KV, Prefix: store.Prefix(),
		Decoder: func(resource schema.GroupResource, dictionaries map[string][]byte, prefix string) (storagevalue.Transformer, error) {
			return b.transformer(compression.Resource{
				GroupResource: resource, Store: name, Prefix: prefix, KV: backup.Dictionaries(prefix, dictionaries),
			}), nil
		},
		Encoder: func(resource schema.GroupResource) (storagevalue.Transformer, error) {
			return b.stored(name, store, resource), nil
		},
		Encryption: b.encryption,
		Raise: func(ctx context.Context, resource schema.GroupResource, floor int64) error {
			return revision.Raise(ctx, store.Client().KV, store.Prefix(), resource, floor)
		},
	}, nil
}

// Defined implements the backend of the endpoints.
func (b backups) Defined(ctx context.Context, name string) (bool, error) {
	store, err := b.available(hostingv1alpha1.DefaultStoreName)
	if err != nil {
		return false, err
	}
	definitions := keys.Objects(store.Prefix(), apiextensionsv1.Resource("customresourcedefinitions"))
	found, err := store.Client().KV.Get(ctx, definitions+name, clientv3.WithCountOnly())
	if err != nil {
		return false, fmt.Errorf("look for customresourcedefinition %s: %w", name, err)
	}
	return found.Count > 0, nil
}

// available returns a Store that is available. The errors are API statuses that name
// it.
func (b backups) available(name string) (routing.Store, error) {
	store, err := b.store(name)
	if err != nil {
		return nil, err
	}
	if err := store.Available(); err != nil {
		return nil, err
	}
	return store, nil
}

// stored returns the transformer of stored values.
func (b backups) stored(name string, store routing.Store, resource schema.GroupResource) storagevalue.Transformer {
	return b.transformer(compression.Resource{
		GroupResource: resource, Store: name, Prefix: store.Prefix(), KV: store.Client().KV,
	})
}

// transformer returns the transformer of restored values. It is created for one
// request: the resource is not served yet.
func (b backups) transformer(resource compression.Resource) storagevalue.Transformer {
	resource.Encryption = b.encryption(resource.GroupResource)
	resource.Enabled = func() bool { return b.compress }
	transformer, _ := compression.NewManager().Transformer(resource)
	return transformer
}

// encryption returns the transformer that encrypts values of a resource.
func (b backups) encryption(resource schema.GroupResource) storagevalue.Transformer {
	if b.transformers != nil {
		if found := b.transformers.TransformerForResource(resource); found != nil {
			return found
		}
	}
	return identity.NewEncryptCheckTransformer()
}
