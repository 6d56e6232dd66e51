// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"cmp"
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
	failed  DifferentError
}

func newLate(t *term) *late {
	return &late{term: t, opened: t.arrival.state.ModRevision, applied: map[string]int64{}}
}

// settle applies late changes for a time, or until ctx is done.
func (l *late) settle(ctx context.Context, w Watch, during time.Duration) error {
	timeout := time.After(during)
	for ctx.Err() == nil {
		select {
		case events, ok := <-w.Events():
			if err := l.applyAll(ctx, events, ok); err != nil && ctx.Err() == nil {
				return errors.Join(l.result(), err)
			}
		case <-timeout:
			return l.result()
		case <-ctx.Done():
		}
	}
	return l.result()
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
	return (*LateError)(&l.failed)
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
		l.failed.add(c.Key)
	}
	return err
}

// isUnwritten reports whether no client has written an object since the target was opened. Late changes do not
// count. at is the revision of the object, 0 if there is none.
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
	r, err := l.to.transact(ctx, l.arrival, []clientv3.Cmp{l.to.isFrozenAt(0)},
		clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(l.to.objects+c.Key), "=", at)},
			[]clientv3.Op{op, clientv3.OpPut(l.to.record, after.encode())}, nil))
	if err != nil {
		return false, fmt.Errorf("write the late object %s of %s: %w", c.Key, l.resource, err)
	}
	if !r.Responses[0].GetResponseTxn().GetSucceeded() {
		return false, nil
	}
	l.record, l.arrival.record, l.arrival.modRevision = after, after, r.Header.GetRevision()
	l.applied[c.Key] = 0
	if c.put {
		l.applied[c.Key] = r.Header.GetRevision()
	}
	return true, nil
}

// Reconcile applies the late changes that no watch has delivered. The source is read once more;
// it has no writers any longer. Like Follow, it returns a *LateError if objects were written here
// meanwhile. It can be repeated.
func (i *Importer) Reconcile(ctx context.Context, from Source) error {
	t, err := i.begin(ctx, from)
	if err != nil {
		return err
	}
	if t.record.Phase != Switched {
		return fmt.Errorf("reconcile %s: the target is not open", i.resource)
	}
	l, applied := newLate(t), t.record.Applied
	err = eachPage(func(cursor string, limit int64) (pair, error) {
		p, err := l.page(ctx, cursor, limit, l.began, 0)
		if err != nil {
			return pair{}, err
		}
		return p, p.each(func(key string, from, to *Object) error {
			switch {
			case from != nil && from.Revision > applied:
				return l.apply(ctx, Change{Object: *from})
			case from == nil && to.Revision <= l.opened:
				return l.apply(ctx, Change{Object: Object{Key: key}, Deleted: true})
			}
			return nil
		})
	})
	if err != nil || l.failed.Count > 0 {
		return cmp.Or(err, l.result())
	}
	l.record.Applied = max(l.record.Applied, l.began)
	return l.commit(ctx)
}
