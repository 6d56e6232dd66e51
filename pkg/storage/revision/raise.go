// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/storage/keys"
)

// Raise saves an offset with which the next revision of a resource, or of the Whole,
// is above floor, unless the saved one does that already.
func Raise(ctx context.Context, annexEtcd clientv3.KV, prefix string, resource schema.GroupResource, floor int64) error {
	now, err := annexEtcd.Get(ctx, keys.Revisions(prefix), clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("reading the revision of etcd: %w", err)
	}
	offset := floor - now.Header.GetRevision()
	if offset <= 0 {
		return nil
	}
	saved, err := Load(ctx, annexEtcd, prefix, resource)
	if err != nil || saved >= offset {
		return err
	}
	return Save(ctx, annexEtcd, prefix, resource, offset)
}

// Highest reads the highest offset that any resource has in the etcd with this prefix.
func Highest(ctx context.Context, annexEtcd clientv3.KV, prefix string) (int64, error) {
	all := keys.Revisions(prefix)
	found, err := annexEtcd.Get(ctx, all, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", all, err)
	}
	var highest int64
	for _, kv := range found.Kvs {
		group, plural, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), all), "/")
		offset, err := Load(ctx, annexEtcd, prefix, schema.GroupResource{Group: group, Resource: plural})
		if err != nil {
			return 0, err
		}
		highest = max(highest, offset)
	}
	return highest, nil
}
