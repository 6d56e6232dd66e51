// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// deletedAtOnce is the number of objects that a transaction deletes.
const deletedAtOnce = 500

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
		if err := m.from.clear(ctx, departure, m.wait); err != nil {
			return err
		}
		if err := m.from.end(ctx, departure, clientv3.OpDelete(m.from.frozen)); err != nil {
			return err
		}
	}
	arrival.Phase = Cleaned
	return m.to.write(ctx, &arrival)
}

// wait waits for the rate of the move.
func (m *Mover) wait(ctx context.Context, n int) error {
	for range n {
		if m.limit == nil {
			return nil
		}
		if err := m.limit.Wait(ctx); err != nil {
			return fmt.Errorf("wait for the rate of the move: %w", err)
		}
	}
	return nil
}

// clear deletes all objects of an end, unless its record changes.
func (e end) clear(ctx context.Context, s stored, wait func(context.Context, int) error) error {
	for {
		page, err := e.KV.Get(ctx, e.objects, clientv3.WithRange(e.boundary), clientv3.WithKeysOnly(), clientv3.WithLimit(deletedAtOnce))
		if err != nil {
			return fmt.Errorf("read the keys of %s: %w", e.resource, err)
		}
		if len(page.Kvs) == 0 {
			return nil
		}
		if err := wait(ctx, len(page.Kvs)); err != nil {
			return err
		}
		last := string(page.Kvs[len(page.Kvs)-1].Key)
		if err := e.do(ctx, s, clientv3.OpDelete(e.objects, clientv3.WithRange(last+"\x00"))); err != nil {
			return err
		}
	}
}

// end removes the record of an end, with operations.
func (e end) end(ctx context.Context, s stored, ops ...clientv3.Op) error {
	return e.do(ctx, s, append(ops, clientv3.OpDelete(e.record))...)
}

// do performs operations, unless the record of an end changes. A full etcd performs deletions if there is nothing
// else.
func (e end) do(ctx context.Context, s stored, ops ...clientv3.Op) error {
	return e.doIf(ctx, []clientv3.Cmp{s.isAt(e), s.unchanged(e)}, ops...)
}

// doIf performs operations on conditions, and returns ErrFenced if one does not hold.
func (e end) doIf(ctx context.Context, conditions []clientv3.Cmp, ops ...clientv3.Op) error {
	r, err := e.KV.Txn(ctx).If(conditions...).Then(ops...).Commit()
	switch {
	case err != nil:
		return fmt.Errorf("change the move of %s: %w", e.resource, err)
	case !r.Succeeded:
		return fmt.Errorf("change the move of %s: %w", e.resource, ErrFenced)
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
	if arrival.UID == m.uid && arrival.Phase != "" {
		return ErrSwitched
	}
	if departure.UID == m.uid {
		if departure.state.Closed {
			return ErrSwitched
		}
		var thaw []clientv3.Op
		if departure.frozenFor == m.uid {
			thaw = append(thaw, clientv3.OpDelete(m.from.frozen))
		}
		// After that no Mover can freeze or close the source.
		if err := m.from.end(ctx, departure, thaw...); err != nil {
			return err
		}
	}
	return m.discard(ctx, arrival)
}
