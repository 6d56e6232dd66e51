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

	"github.com/annex-dev/annex/pkg/storage/keys"
	"github.com/annex-dev/annex/pkg/storage/revision"
)

// copier copies a resource from a Source to a Store. It is what a Mover and an Importer share.
type copier struct {
	resource schema.GroupResource
	// uid is that of the move, and hosted that of the HostedResource.
	uid, hosted types.UID
	// holder identifies the copier in records.
	holder string
	// imports is whether the source is not a Store.
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

func newCopier(of ImportConfig) *copier {
	if of.Report == nil {
		of.Report = func(Progress) {}
	}
	return &copier{
		resource: of.Resource, uid: of.UID, hosted: of.HostedResource, holder: string(uuid.NewUUID()), from: of.From,
		to: newEnd(of.To, of.Resource, keys.Arrival(of.To.Prefix, of.Resource)), limit: of.Limit, pace: of.Pace, report: of.Report,
	}
}

// checkArrival reads what the target has, and returns a *Refusal if it cannot take the resource.
func (c *copier) checkArrival(ctx context.Context) (stored, error) {
	a, err := c.to.read(ctx)
	if err != nil || a.UID == c.uid { // begun
		return a, err
	}
	objects, err := c.to.Count(ctx)
	if err != nil {
		return a, err
	}
	switch {
	case !hasEnded(a.record):
		return a, refuse(c.resource, ReasonMoving, "the Migration with the UID %s moves it into the Store", a.UID)
	case objects > 0:
		return a, refuse(c.resource, ReasonNotEmpty, "the Store has %d keys among those of the resource", objects)
	case a.isFrozen:
		return a, refuse(c.resource, ReasonFrozen, "it is frozen in the Store that it would be moved to")
	}
	return a, nil
}

func refuse(resource schema.GroupResource, reason, format string, arguments ...any) error {
	return &Refusal{Reason: reason, Message: fmt.Sprintf("%s cannot be moved: %s", resource, fmt.Sprintf(format, arguments...))}
}

// claim begins the move at the target, which it closes, unless it has begun. The copy begins at a
// revision of the source.
func (c *copier) claim(ctx context.Context, arrival stored, source int64) error {
	if arrival.UID == c.uid {
		return nil
	}
	first := record{UID: c.uid, Holder: c.holder, Imported: c.imports, Applied: source}
	isEmpty := clientv3.Compare(clientv3.CreateRevision(c.to.objects).WithPrefix(), "=", 0)
	return c.to.doIf(ctx, []clientv3.Cmp{arrival.isAt(c.to), arrival.unchanged(c.to), isEmpty},
		clientv3.OpPut(c.to.record, first.encode()), revision.Close(c.to.Prefix, c.resource, arrival.state, c.hosted))
}

// takeOver fences all others at the target. The source is at a revision.
func (c *copier) takeOver(ctx context.Context, source int64) (*term, error) {
	arrival, err := c.to.takeOver(ctx, c)
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

// checkNotSwitched returns ErrSwitched once the target is open.
func (c *copier) checkNotSwitched(arrival stored) error {
	if arrival.UID == c.uid && arrival.Phase != "" {
		return ErrSwitched
	}
	return nil
}

// discard deletes what the target has, and ends the move there. The record of an import stays as ended, also of one that
// has not begun: an Importer that was replaced must not begin it. A full etcd takes only deletions, and so no new claim:
// there, the record is deleted first instead. What a Store without one has is left if it is closed for the HostedResource.
func (c *copier) discard(ctx context.Context, arrival stored) error {
	state := arrival.state
	isOurs := arrival.UID == c.uid || arrival.UID == "" && state.Closed && !state.Returned && state.ClosedFor == c.hosted
	if c.imports && (arrival.UID == c.uid && arrival.Phase != Cleaned || hasEnded(arrival.record)) {
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
		if err := c.to.end(ctx, arrival); err != nil {
			return err
		}
		arrival.modRevision = 0
	}
	if !state.Closed && c.imports {
		return nil // its objects are not of a copy
	}
	if err := c.to.clear(ctx, arrival, nil); err != nil {
		return err
	}
	if !c.imports {
		return nil // it stays closed: a replica may still have the route of a time when it had the objects
	}
	open, err := revision.Open(c.to.Prefix, c.resource, state, state.Offset)
	if err != nil {
		return fmt.Errorf("open %s without objects: %w", c.resource, err)
	}
	return c.to.do(ctx, arrival, open)
}

// hasEnded reports whether a Store may take a resource nevertheless that has a record.
func hasEnded(r record) bool {
	// An import has nothing left to do after the switch.
	return r.UID == "" || r.Phase == Cleaned || r.Phase == Adopted || r.Imported && r.Phase == Switched
}

// term is the time in which a copier holds the record of the target.
type term struct {
	*copier
	loop
	arrival stored
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

// isFull implements writer.
func (t *term) isFull() bool { return false }

// commit performs operations at the target together with the record.
func (t *term) commit(ctx context.Context, ops ...clientv3.Op) error {
	t.arrival.record = t.record
	if err := t.to.write(ctx, &t.arrival, ops...); err != nil {
		return err
	}
	t.saved = t.record
	return nil
}

// openAbove opens the target with resource versions above one.
func (t *term) openAbove(ctx context.Context, lowest int64) error {
	open, err := revision.Open(t.to.Prefix, t.resource, t.arrival.state, max(0, lowest-t.arrival.revision))
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
