// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package freeze stops the requests of a resource in a Store, by conditions that etcd decides, at
// every replica however stale it is.
//
// Writes stop while the key of the freeze exists: every write is a transaction with the condition that it
// does not. Once the key is written nothing else is, and what is read stays current. The key stays until it is
// deleted, even if the process that wrote it ends.
//
// All requests stop once the resource is closed (pkg/storage/layer/revision), or once its revisions were
// raised: every request is a transaction with the condition that neither has happened since a Gate
// was made. A watch ends before the first change that comes after the closing. A resource that is
// opened again needs a new Gate.
package freeze

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
)

// Returning is the value of the key of a freeze for the return to the main cluster. In a move between Stores, the
// value is the UID of the move.
const Returning = ""

// Target is a resource in the Store that holds it.
type Target struct {
	// KV is the Store's etcd, with unshifted revisions.
	KV clientv3.KV
	// Prefix begins the keys of the Store.
	Prefix   string
	Resource schema.GroupResource
}

// Objects counts the objects of the resource, unreadable ones included.
func (t Target) Objects(ctx context.Context) (int64, error) {
	response, err := t.KV.Get(ctx, keys.Objects(t.Prefix, t.Resource), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("count the objects of %s: %w", t.Resource, err)
	}
	return response.Count, nil
}
