// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// late applies changes that arrive after the target was opened.
type late struct {
	*term
	// opened is the revision of the target from when on clients could write.
	opened int64
	// applied has the revisions of objects that were written here since, 0 for those deleted.
	applied map[string]int64
	failed  LateError
}

func newLate(t *term) *late {
	return &late{term: t, opened: t.arrival.state.ModRevision, applied: map[string]int64{}}
}

// settle applies late changes for a time, or until ctx is done.
func (l *late) settle(ctx context.Context, w Watch, during time.Duration) error {
	timeout := time.NewTimer(during)
	defer timeout.Stop()
	for {
		select {
		case events, ok := <-w.Events():
			err := l.applyAll(ctx, events, ok)
			if ctx.Err() != nil {
				return l.result()
			}
			if err != nil {
				return errors.Join(l.result(), err)
			}
		case <-timeout.C:
			return l.result()
		case <-ctx.Done():
			return l.result()
		}
	}
}

// applyAll applies what was received, which is not ok if the watch has ended.
func (l *late) applyAll(ctx context.Context, events Events, ok bool) error {
	if !ok || events.Err != nil {
		return ErrWatchLost
	}
	for _, c := range events.Changes {
		if err := l.apply(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func (l *late) result() error {
	if l.failed.Count == 0 {
		return nil
	}
	return &l.failed
}

// apply applies a change unless the object was written since the target was opened.
func (l *late) apply(ctx context.Context, event Change) error {
	c, err := l.decode(ctx, event)
	if err != nil {
		return err
	}
	key := l.to.objects + c.Key
	found, err := l.to.KV.Get(ctx, key, clientv3.WithKeysOnly())
	if err != nil {
		return fmt.Errorf("read object %s of %s: %w", c.Key, l.resource, err)
	}
	var at int64
	if len(found.Kvs) > 0 {
		at = found.Kvs[0].ModRevision
	}
	if at == 0 && !c.put {
		return nil // both have deleted it
	}
	unwritten, err := l.isUnwritten(ctx, event, at)
	if err != nil {
		return err
	}
	if unwritten {
		unwritten, err = l.write(ctx, c, event.Revision, at)
	}
	if err == nil && !unwritten {
		l.fail(c.Key)
	}
	return err
}

func (l *late) fail(key string) {
	if l.failed.Count++; len(l.failed.Objects) < namedDifferences {
		l.failed.Objects = append(l.failed.Objects, key)
	}
}

// isUnwritten reports whether an object, whose revision is at or 0 if there is none, is as it was when
// the target was opened, or as a late change has left it.
func (l *late) isUnwritten(ctx context.Context, event Change, at int64) (bool, error) {
	if applied, found := l.applied[event.Key]; found {
		return at == applied, nil
	}
	if at > 0 || event.Created {
		return at <= l.opened, nil
	}
	before, err := l.to.KV.Get(ctx, l.to.objects+event.Key, clientv3.WithRev(l.opened), clientv3.WithCountOnly())
	if errors.Is(err, rpctypes.ErrCompacted) {
		return false, nil // a client may have deleted it
	}
	if err != nil {
		return false, fmt.Errorf("read what object %s of %s was: %w", event.Key, l.resource, err)
	}
	return before.Count == 0, nil
}

// write writes a late change, unless the object was written meanwhile. With it, it records that the
// target has the changes until then.
func (l *late) write(ctx context.Context, c change, revision, at int64) (bool, error) {
	op, err := l.to.op(ctx, c)
	if err != nil {
		return false, err
	}
	after := l.record
	after.Applied = max(after.Applied, revision)
	// Another move out of the Store may have begun.
	held := []clientv3.Cmp{l.arrival.isAt(l.to), l.arrival.unchanged(l.to), clientv3.Compare(clientv3.CreateRevision(l.to.frozen), "=", 0)}
	same := clientv3.Compare(clientv3.ModRevision(l.to.objects+c.Key), "=", at)
	r, err := l.to.KV.Txn(ctx).If(append(held, same)...).Then(op, clientv3.OpPut(l.to.record, after.encode())).
		Else(clientv3.OpTxn(held, nil, nil)).Commit()
	switch {
	case err != nil:
		return false, fmt.Errorf("write the late object %s of %s: %w", c.Key, l.resource, err)
	case !r.Succeeded && !r.Responses[0].GetResponseTxn().GetSucceeded():
		return false, fmt.Errorf("write the late object %s of %s: %w", c.Key, l.resource, ErrFenced)
	case r.Succeeded:
		l.record, l.arrival.record, l.arrival.modRevision = after, after, r.Header.GetRevision()
		l.applied[c.Key] = r.Header.GetRevision()
		if !c.put {
			l.applied[c.Key] = 0
		}
	}
	return r.Succeeded, nil
}
