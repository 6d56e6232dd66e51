// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/annex-dev/annex/pkg/storage/layer/revision"
)

const (
	// freezeTimeout bounds how long the source is frozen before it is closed. Requests wait longer (pkg/storage/routing).
	freezeTimeout = 3 * time.Second
	thawTimeout   = 5 * time.Second
	// revisionGap is added to the resource versions of the source. It exceeds the number of writes to the source's etcd
	// while its last watches end, and is small for the reason of importGap.
	revisionGap = 1_000_000
)

// Switch freezes the source, applies the rest, closes the source and opens the target. Writes wait from the freeze on and
// reads from the closing on, both until the HostedResource names the target. If the source cannot be closed in
// freezeTimeout it is thawed.
func (m *Mover) Switch(ctx context.Context) error {
	t, err := m.fence(ctx)
	if err != nil || t.record.Phase != "" {
		return err
	}
	if !t.departure.state.Closed {
		if !t.record.Copied {
			return ErrNotCopied
		}
		if err := t.drainAndClose(ctx); err != nil {
			return err
		}
	}
	return t.open(ctx)
}

// drainAndClose closes the source once the target has all of it.
func (t *tenure) drainAndClose(ctx context.Context) error {
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	var frozenAt int64
	var timer *time.Timer
	err := t.run(bounded, func() (finished bool, err error) {
		if frozenAt == 0 && t.isCaughtUp() && t.record.Applied >= t.current {
			timer = time.AfterFunc(freezeTimeout, cancel)
			t.eager = true
			frozenAt, err = t.freeze(bounded)
			return false, err
		}
		return frozenAt > 0 && t.record.Copied && t.record.Applied >= frozenAt, err
	})
	if timer != nil {
		timer.Stop()
	}
	if err == nil {
		err = t.close(bounded, frozenAt)
	}
	if err == nil || errors.Is(err, ErrFenced) {
		return err // what another Mover has frozen is not thawed
	}
	if bounded.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("the changes of %s were not applied within %s: %w", t.resource, freezeTimeout, err)
	}
	return errors.Join(err, t.thaw(context.WithoutCancel(ctx)))
}

// freeze stops writes at the source, and returns the revision from when on there are none.
func (t *tenure) freeze(ctx context.Context) (int64, error) {
	if err := t.from.write(ctx, &t.departure, clientv3.OpPut(t.from.frozen, string(t.uid))); err != nil {
		return 0, err
	}
	t.current = max(t.current, t.departure.revision)
	return t.departure.revision, nil
}

// close closes the source, if it is frozen since a revision.
func (t *tenure) close(ctx context.Context, frozenAt int64) error {
	return t.from.close(ctx, t.departure, frozenAt, revision.Close(t.from.Prefix, t.resource, t.departure.state, t.hosted))
}

// thaw allows writes at the source again, unless it is closed or another Mover has fenced this one.
func (t *tenure) thaw(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, thawTimeout)
	defer cancel()
	_, err := t.from.KV.Txn(ctx).
		If(t.from.unchanged(t.departure), clientv3.Compare(clientv3.Value(t.from.frozen), "=", string(t.uid)),
			clientv3.Compare(clientv3.Value(t.from.record), "=", t.departure.encode())).
		// A freeze that is still under way fails at the new revision of the record.
		Then(clientv3.OpDelete(t.from.frozen), clientv3.OpPut(t.from.record, t.departure.encode())).
		Commit()
	if err != nil {
		return fmt.Errorf("thaw %s: %w", t.resource, err)
	}
	return nil
}

// open opens the target, with resource versions above all that clients have seen.
func (t *tenure) open(ctx context.Context) error {
	source, err := t.from.read(ctx)
	if err != nil {
		return err
	}
	if !source.state.Closed {
		return fmt.Errorf("open %s at the new Store: the old one is not closed", t.resource)
	}
	if err := t.openAbove(ctx, source.revision+source.state.Offset+revisionGap); err != nil {
		return err
	}
	_, err = t.from.removeTombstone(ctx)
	return err
}

// Clean deletes the objects at the source, which no client reads, unless its Store is lost. The dictionaries stay, for
// backups.
func (m *Mover) Clean(ctx context.Context) error {
	arrival, err := m.to.read(ctx)
	if err == nil {
		err = arrival.checkHeld(m.copier)
	}
	switch {
	case err != nil:
		return err
	case arrival.Phase == "":
		return fmt.Errorf("end the move of %s: it was not switched to the new Store", m.resource)
	case m.from.KV != nil:
		if err := m.cleanSource(ctx); err != nil {
			return err
		}
	}
	arrival.Phase = Cleaned
	return m.to.write(ctx, &arrival)
}

func (m *Mover) cleanSource(ctx context.Context) error {
	departure, err := m.from.read(ctx)
	switch {
	case err != nil || departure.UID != m.uid:
		return err
	case !departure.state.Closed:
		return fmt.Errorf("delete %s at the old Store: it is not closed", m.resource)
	}
	// It may be full, so others are not fenced there. Several Movers may delete the same.
	if err := m.from.clear(ctx, departure, m.limit); err != nil {
		return err
	}
	return m.from.do(ctx, departure, clientv3.OpDelete(m.from.frozen), clientv3.OpDelete(m.from.record))
}

// Cancel undoes the move: the source takes writes, and the target has no objects. Once the source is
// closed it returns ErrSwitched. A move that has not begun is canceled already.
func (m *Mover) Cancel(ctx context.Context) error {
	arrival, err := m.to.read(ctx)
	if err != nil {
		return err
	}
	departure, err := m.from.read(ctx)
	switch {
	case err != nil:
		return err
	case arrival.UID == m.uid && arrival.Phase != "":
		return ErrSwitched
	case departure.UID == m.uid:
		// After that no Mover can freeze or close the source.
		if err := m.from.giveUp(ctx, departure, clientv3.OpDelete(m.from.record)); err != nil {
			return err
		}
	}
	return m.discard(ctx, arrival)
}

// Release ends the move without the target, whose Store is lost: the source serves the resource
// again. No request may have been sent to the target.
func (m *Mover) Release(ctx context.Context) error {
	departure, err := m.from.read(ctx)
	if err != nil || departure.UID != m.uid {
		return err
	}
	if departure, err = m.from.fence(ctx, m.copier); err != nil {
		return err
	}
	ops := []clientv3.Op{clientv3.OpDelete(m.from.frozen), clientv3.OpDelete(m.from.record)}
	if departure.state.Closed {
		open, err := revision.Open(m.from.Prefix, m.resource, departure.state, departure.state.Offset)
		if err != nil {
			return fmt.Errorf("open %s at the old Store: %w", m.resource, err)
		}
		ops = append(ops, open, clientv3.OpDelete(m.from.tombstone))
	}
	return m.from.do(ctx, departure, ops...)
}
