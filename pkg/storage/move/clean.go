// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/time/rate"
)

// Clean deletes the objects at the source. No client reads them since it is closed. The dictionaries
// stay, for backups.
func (m *Mover) Clean(ctx context.Context) error {
	departure, arrival, err := m.readEnds(ctx)
	if err != nil {
		return err
	}
	if err := m.isHeld(arrival); err != nil {
		return err
	}
	if arrival.Phase == "" {
		return fmt.Errorf("delete %s at the old Store: it was not switched to the new one", m.resource)
	}
	if departure.UID == m.uid {
		if !departure.state.Closed {
			return fmt.Errorf("delete %s at the old Store: it is not closed", m.resource)
		}
		// It may be full, so it is not taken over. Several Movers may delete the same.
		if err := m.from.clear(ctx, departure, m.limit); err != nil {
			return err
		}
		if err := m.from.end(ctx, departure, clientv3.OpDelete(m.from.frozen)); err != nil {
			return err
		}
	}
	arrival.Phase = Cleaned
	return m.to.write(ctx, &arrival)
}

// atRate waits for the rate of a move, which may have none.
func atRate(ctx context.Context, limit *rate.Limiter, n int) error {
	for i := 0; i < n && limit != nil; i++ {
		if err := limit.Wait(ctx); err != nil {
			return fmt.Errorf("wait for the rate of the move: %w", err)
		}
	}
	return nil
}

// Cancel undoes the move: the source takes writes, and the target has no objects. Once the source is
// closed it returns ErrSwitched. A move that has not begun is canceled already.
func (m *Mover) Cancel(ctx context.Context) error {
	departure, arrival, err := m.readEnds(ctx)
	if err != nil {
		return err
	}
	if err := m.checkNotSwitched(arrival); err != nil {
		return err
	}
	if departure.UID == m.uid {
		// After that no Mover can freeze or close the source.
		if err := m.from.giveUp(ctx, departure, clientv3.OpDelete(m.from.record)); err != nil {
			return err
		}
	}
	return m.discard(ctx, arrival)
}
