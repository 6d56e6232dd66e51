// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/layer/revision"
)

// copier copies a resource from a Source to a Store, for a Mover or an Importer.
type copier struct {
	resource schema.GroupResource
	// uid identifies the move, and hosted the HostedResource.
	uid, hosted types.UID
	// holder identifies the copier in records.
	holder string
	// imports is set if the source is not a Store.
	imports bool
	from    Source
	to      end
	limit   *rate.Limiter
	pace    *Pace
	report  func(Progress)
	// restarts counts the times that the copy began again.
	restarts atomic.Int64
	compared
}

func newCopier(of Config, from Source) *copier {
	if of.Report == nil {
		of.Report = func(Progress) {}
	}
	return &copier{
		resource: of.Resource, uid: of.UID, hosted: of.HostedResource, holder: string(uuid.NewUUID()), from: from,
		to: newEnd(of.To, of.Resource, keys.Arrival(of.To.Prefix, of.Resource)), limit: of.Limit, pace: of.Pace, report: of.Report,
	}
}

// State reads how far the move is by what the target has: Absent, Copying, Following, Switched, Adopted or Cleaned.
func (c *copier) State(ctx context.Context) (State, error) {
	arrival, err := c.to.read(ctx)
	switch {
	case err != nil:
		return "", err
	case arrival.UID != c.uid:
		return Absent, nil
	case arrival.Phase != "":
		return arrival.Phase, nil
	case arrival.Copied:
		return Following, nil
	}
	return Copying, nil
}

// checkArrival reads what the target has, and returns a *Refusal if it cannot take the resource.
func (c *copier) checkArrival(ctx context.Context) (stored, error) {
	a, err := c.to.read(ctx)
	if err != nil || a.UID == c.uid { // begun
		return a, err
	}
	objects, err := c.to.Count(ctx)
	switch {
	case err != nil:
		return a, err
	case !a.hasEnded():
		return a, refuse(c.resource, ReasonMoving, "the Migration with the UID %s moves it into the Store", a.UID)
	case objects > 0:
		return a, refuse(c.resource, ReasonNotEmpty, "the Store has %d keys among those of the resource", objects)
	case a.frozenAt > 0:
		return a, refuse(c.resource, ReasonFrozen, "it is frozen in the Store that it would be moved to")
	}
	return a, nil
}

// claim begins the move at the target, which it closes, unless it has begun. The copy begins at a
// revision of the source.
func (c *copier) claim(ctx context.Context, arrival stored, source int64) error {
	if arrival.UID == c.uid {
		return nil
	}
	arrival.record = record{UID: c.uid, Holder: c.holder, Imported: c.imports, Began: arrival.revision, Applied: source}
	isEmpty := clientv3.Compare(clientv3.CreateRevision(c.to.objects).WithPrefix(), "=", 0)
	_, err := c.to.transact(ctx, arrival, []clientv3.Cmp{isEmpty},
		clientv3.OpPut(c.to.record, arrival.encode()), revision.Close(c.to.Prefix, c.resource, arrival.state, c.hosted))
	return err
}

// fence fences all others at the target. The source is at a revision.
func (c *copier) fence(ctx context.Context, source int64) (*term, error) {
	arrival, err := c.to.fence(ctx, c)
	if err != nil {
		return nil, err
	}
	t := &term{copier: c, arrival: arrival}
	t.loop = loop{
		sides: sides{c.from, c.to, c.pace}, writer: t, limit: c.limit, report: c.report, restarts: &c.restarts,
		record: arrival.record, saved: arrival.record, began: source, current: source,
	}
	return t, nil
}

// discard deletes what the target has, and ends the move there. The record of an import stays as ended, also of one that
// has not begun: an Importer that was replaced must not begin it. A full etcd takes only deletions, so the record is
// deleted first there. What a Store without one has is left if it is closed for the HostedResource.
func (c *copier) discard(ctx context.Context, arrival stored) error {
	state := arrival.state
	isOurs := arrival.UID == c.uid || arrival.UID == "" && state.Closed && !state.Returned && state.ClosedFor == c.hosted
	if c.imports && (arrival.UID == c.uid && arrival.Phase != Cleaned || arrival.hasEnded()) {
		ended := arrival
		ended.record = record{UID: c.uid, Holder: c.holder, Imported: true, Phase: Cleaned}
		err := c.to.write(ctx, &ended)
		switch {
		case err == nil:
			arrival = ended
		case !errors.Is(err, rpctypes.ErrNoSpace):
			return err
		}
	}
	if !isOurs {
		return nil
	}
	if arrival.modRevision > 0 && arrival.Phase != Cleaned {
		if err := c.to.do(ctx, arrival, clientv3.OpDelete(c.to.record)); err != nil {
			return err
		}
		arrival.modRevision = 0
	}
	if !state.Closed && c.imports {
		return nil // its objects are not of a copy
	}
	if err := c.to.clear(ctx, arrival, nil); err != nil || !c.imports {
		return err // a Mover leaves it closed: a replica may still have the route of a time when it had the objects
	}
	open, err := revision.Open(c.to.Prefix, c.resource, state, state.Offset)
	if err != nil {
		return fmt.Errorf("open %s without objects: %w", c.resource, err)
	}
	return c.to.do(ctx, arrival, open)
}

// term is the time in which a copier holds the record of the target.
type term struct {
	*copier
	loop
	arrival stored
}

// run applies changes and copies pages until done, which is called after each batch.
func (t *term) run(ctx context.Context, done func() (bool, error)) error {
	return t.repeat(ctx, nil, func() error { return t.follow(ctx, done) })
}

// repeat calls watch again after changes were missed. It does so after the end of the watch of an import, too, because an
// API server ends them as it likes. Once no is closed it returns ErrWatchLost instead.
func (t *term) repeat(ctx context.Context, no <-chan struct{}, watch func() error) error {
	if t.record.Phase != "" {
		return ErrSwitched
	}
	for {
		err := watch()
		compacted := errors.Is(err, ErrCompacted)
		if !compacted && (!t.imports || !errors.Is(err, errWatchEnded)) {
			return err
		}
		var failed error
		if !isClosed(no) {
			failed = t.beforeReopening(ctx, no, compacted)
		}
		if isClosed(no) {
			return fmt.Errorf("follow %s: %w: %w", t.resource, ErrWatchLost, err)
		}
		if failed != nil {
			return failed
		}
	}
}

// beforeReopening reads what the next watch has to catch up with: until then that it is quiet means nothing. It
// ends when no is closed: requests to the source may be held then.
func (t *term) beforeReopening(ctx context.Context, no <-chan struct{}, compacted bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(wait.ContextForChannel(no), cancel)()
	err := pause(ctx, reopenPause)
	if err == nil && compacted {
		err = t.restart(ctx)
	}
	if err == nil {
		t.began, err = t.source.Revision(ctx)
	}
	return err
}

// write implements writer by a transaction.
func (t *term) write(ctx context.Context, changes []change) error {
	ops := make([]clientv3.Op, 0, len(changes)+1)
	for _, c := range changes {
		op, err := t.to.op(ctx, c)
		if err != nil {
			return err
		}
		ops = append(ops, op)
	}
	return t.commit(ctx, ops...)
}

func (t *term) isFull() bool { return false }

// commit performs operations at the target together with the record.
func (t *term) commit(ctx context.Context, ops ...clientv3.Op) error {
	t.arrival.record = t.record
	err := t.to.write(ctx, &t.arrival, ops...)
	if err == nil {
		t.saved = t.record
	}
	return err
}

// openAbove opens the target with resource versions above one. Copied objects have higher ones too, also if the target's
// etcd took many other writes since.
func (t *term) openAbove(ctx context.Context, lowest int64) error {
	open, err := revision.Open(t.to.Prefix, t.resource, t.arrival.state, max(0, lowest-t.record.Began))
	if err != nil {
		return fmt.Errorf("open %s at the new Store: %w", t.resource, err)
	}
	t.record.Phase = Switched
	if err := t.commit(ctx, open); err != nil {
		return err
	}
	t.arrival.state.Closed, t.arrival.state.ModRevision = false, t.arrival.modRevision
	return nil
}
