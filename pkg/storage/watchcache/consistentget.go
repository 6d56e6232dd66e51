// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"path"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// ConsistentGet wraps a watch cache of Objects. A consistent read asks etcd only for the
// revision of the key: if the cache has that revision it has the object, because a key never
// has two values of one revision. prefix begins all keys in etcd.
func ConsistentGet(cached storage.Interface, kv clientv3.KV, prefix string) storage.Interface {
	return &consistentGet{Interface: cached, kv: kv, prefix: path.Join("/", prefix) + "/"}
}

type consistentGet struct {
	storage.Interface
	kv     clientv3.KV
	prefix string
}

// Get implements storage.Interface.
func (s *consistentGet) Get(ctx context.Context, key string, options storage.GetOptions, out runtime.Object) error {
	if into, ok := out.(*Object); ok && options.ResourceVersion == "" {
		if cached := lookUp(ctx, s.Interface, key); cached != nil && s.isCurrent(ctx, key, cached.GetResourceVersion()) {
			*into = *cached
			return nil
		}
	}
	return s.Interface.Get(ctx, key, options, out)
}

// isCurrent reports whether etcd has an object in a version.
func (s *consistentGet) isCurrent(ctx context.Context, key, version string) bool {
	found, err := s.kv.Get(ctx, s.prefix+strings.TrimPrefix(key, "/"), clientv3.WithKeysOnly())
	return err == nil && len(found.Kvs) == 1 && strconv.FormatInt(found.Kvs[0].ModRevision, 10) == version
}

// lookUp returns the object that a watch cache has, or nil.
func lookUp(ctx context.Context, cache storage.Interface, key string) *Object {
	object := &Object{}
	if cache.ReadinessCheck() != nil || cache.Get(ctx, key, storage.GetOptions{ResourceVersion: "0"}, object) != nil {
		return nil
	}
	return object
}
