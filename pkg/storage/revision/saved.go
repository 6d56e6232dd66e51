// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"context"
	"fmt"
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/storage/keys"
)

// AllResources stands for all resources of a Store.
var AllResources = schema.GroupResource{}

// highestOffset leaves more revisions above it than an etcd will use.
const highestOffset = 1 << 61

// Load reads the offset of a resource in the etcd with this prefix: the higher of its own and
// that of AllResources, 0 if there is none.
func Load(ctx context.Context, annexEtcd clientv3.KV, prefix string, resource schema.GroupResource) (int64, error) {
	ofWhole, ofResource := key(prefix, AllResources), key(prefix, resource)
	r, err := annexEtcd.Txn(ctx).Then(clientv3.OpGet(ofWhole), clientv3.OpGet(ofResource)).Commit()
	if err != nil {
		return 0, fmt.Errorf("read %s and %s: %w", ofWhole, ofResource, err)
	}
	var offset int64
	for _, response := range r.Responses {
		saved, err := parse(response.GetResponseRange().Kvs)
		if err != nil {
			return 0, err
		}
		offset = max(offset, saved.offset)
	}
	return offset, nil
}

// Save raises the offset of a resource, or of AllResources, to at least this. It never lowers it
// and is idempotent.
func Save(ctx context.Context, annexEtcd clientv3.KV, prefix string, resource schema.GroupResource, offset int64) error {
	key := key(prefix, resource)
	if offset < 0 || offset > highestOffset {
		return fmt.Errorf("save %s: an offset of revisions cannot be %d, only 0 to %d", key, offset, int64(highestOffset))
	}
	for {
		before, err := load(ctx, annexEtcd, key)
		if err != nil || before.offset >= offset {
			return err
		}
		r, err := annexEtcd.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", before.modRevision)).
			Then(clientv3.OpPut(key, strconv.FormatInt(offset, 10))).
			Commit()
		if err != nil {
			return fmt.Errorf("save %s: %w", key, err)
		}
		if r.Succeeded {
			return nil
		}
	}
}

type saved struct {
	offset, modRevision int64
}

func load(ctx context.Context, annexEtcd clientv3.KV, key string) (saved, error) {
	r, err := annexEtcd.Get(ctx, key)
	if err != nil {
		return saved{}, fmt.Errorf("read %s: %w", key, err)
	}
	return parse(r.Kvs)
}

// parse parses what was found at one key.
func parse(found []*mvccpb.KeyValue) (saved, error) {
	if len(found) == 0 {
		return saved{}, nil
	}
	offset, err := strconv.ParseInt(string(found[0].Value), 10, 64)
	if err != nil || offset < 0 || offset > highestOffset {
		// Resource versions would decrease without it.
		return saved{}, fmt.Errorf("%s holds %q, which is no offset of revisions", found[0].Key, found[0].Value)
	}
	return saved{offset: offset, modRevision: found[0].ModRevision}, nil
}

func key(prefix string, resource schema.GroupResource) string {
	if resource == AllResources {
		return keys.Revisions(prefix)
	}
	return keys.Revision(prefix, resource)
}
