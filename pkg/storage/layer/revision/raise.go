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

	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
)

// Raise saves an offset that raises the next revision of a resource, or of AllResources, above
// floor, unless the saved one already does.
func Raise(ctx context.Context, annexEtcd clientv3.KV, prefix string, resource schema.GroupResource, floor int64) error {
	now, err := annexEtcd.Get(ctx, keys.Revisions(prefix), clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("read the revision of etcd: %w", err)
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

// HighestOffset reads the highest offset of any resource in the etcd with this prefix.
func HighestOffset(ctx context.Context, annexEtcd clientv3.KV, prefix string) (int64, error) {
	all := keys.Revisions(prefix)
	found, err := annexEtcd.Get(ctx, all, clientv3.WithPrefix())
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", all, err)
	}
	return HighestOf(found.Kvs)
}

// HighestOf returns the highest offset in the keys below keys.Revisions.
func HighestOf(found []*mvccpb.KeyValue) (int64, error) {
	var highest int64
	for i := range found {
		saved, err := Of(found[i : i+1])
		if err != nil {
			return 0, err
		}
		highest = max(highest, saved.own)
	}
	return highest, nil
}

// Put returns the operation that sets the offset of AllResources.
func Put(prefix string, offset int64) (clientv3.Op, error) {
	if offset < 0 || offset > highestOffset {
		return clientv3.Op{}, fmt.Errorf("an offset of revisions cannot be %d, only 0 to %d", offset, int64(highestOffset))
	}
	return clientv3.OpPut(key(prefix, AllResources), strconv.FormatInt(offset, 10)), nil
}
