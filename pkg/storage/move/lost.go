// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/annex-dev/annex/pkg/storage/keys"
	"github.com/annex-dev/annex/pkg/storage/revision"
)

// Release ends the move without the target, whose Store is lost: the source serves the resource
// again. No request may have been sent to the target.
func (m *Mover) Release(ctx context.Context) error {
	departure, err := m.from.read(ctx)
	if err != nil || departure.UID != m.uid {
		return err
	}
	if departure, err = m.from.takeOver(ctx, m.copier); err != nil {
		return err
	}
	ops := []clientv3.Op{clientv3.OpDelete(m.from.frozen)}
	if departure.state.Closed {
		open, err := revision.Open(m.from.Prefix, m.resource, departure.state, departure.state.Offset)
		if err != nil {
			return fmt.Errorf("open %s at the old Store: %w", m.resource, err)
		}
		ops = append(ops, open, clientv3.OpDelete(keys.Tombstone(m.from.Prefix, m.resource)))
	}
	return m.from.end(ctx, departure, ops...)
}

// Finish ends the move without the source, whose Store is lost after the switch: its objects are
// not deleted.
func (m *Mover) Finish(ctx context.Context) error {
	arrival, err := m.to.takeOver(ctx, m.copier)
	if err != nil {
		return err
	}
	if arrival.Phase == "" {
		return fmt.Errorf("end the move of %s without the old Store: it was not switched to the new one", m.resource)
	}
	arrival.Phase = Cleaned
	return m.to.write(ctx, &arrival)
}
