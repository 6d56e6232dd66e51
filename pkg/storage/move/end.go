// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/layer/freeze"
)

// End is a resource in the etcd of a Store.
type End struct {
	// KV and Watcher return etcd's own revisions.
	KV      clientv3.KV
	Watcher clientv3.Watcher
	// Prefix precedes the Store's keys.
	Prefix string
	// Transformer decodes and encodes values of the resource in this Store.
	Transformer value.Transformer
}

// end is an End with the keys of the resource.
type end struct {
	End
	resource                  schema.GroupResource
	objects, boundary         string // the range of objects
	record, frozen, tombstone string
}

var _ Source = end{}

func newEnd(e End, resource schema.GroupResource, record string) end {
	objects := keys.Objects(e.Prefix, resource)
	return end{
		End: e, resource: resource, objects: objects, boundary: clientv3.GetPrefixRangeEnd(objects),
		record: record, frozen: keys.Frozen(e.Prefix, resource), tombstone: keys.Tombstone(e.Prefix, resource),
	}
}

// op returns the operation of a change.
func (e end) op(ctx context.Context, c change) (clientv3.Op, error) {
	key := e.objects + c.Key
	if !c.put {
		return clientv3.OpDelete(key), nil
	}
	encoded, err := e.Transformer.TransformToStorage(ctx, c.Value, value.DefaultContext(key))
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("encode object %s of %s: %w", c.Key, e.resource, err)
	}
	return clientv3.OpPut(key, string(encoded)), nil
}

// Equal implements replica. A value that cannot be read is written anew.
func (e end) Equal(ctx context.Context, from, to Object) (bool, error) {
	plain, err := e.Decode(ctx, to)
	return err == nil && bytes.Equal(plain, from.Value), nil
}

func (e end) Count(ctx context.Context) (int64, error) {
	return freeze.Target{KV: e.KV, Prefix: e.Prefix, Resource: e.resource}.Objects(ctx)
}

func (e end) Revision(ctx context.Context) (int64, error) {
	now, err := e.KV.Get(ctx, e.record, clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("read the revision of etcd: %w", err)
	}
	return now.Header.GetRevision(), nil
}

// Page implements Source. A revision of 0 is the present.
func (e end) Page(ctx context.Context, after string, limit, revision int64) (objects []Object, more bool, err error) {
	first := e.objects
	if after != "" {
		first += after + "\x00"
	}
	page, err := e.KV.Get(ctx, first, clientv3.WithRange(e.boundary), clientv3.WithRev(revision), clientv3.WithLimit(limit))
	if errors.Is(err, rpctypes.ErrCompacted) {
		err = ErrCompacted
	}
	if err != nil {
		return nil, false, fmt.Errorf("read the objects of %s: %w", e.resource, err)
	}
	objects = make([]Object, 0, len(page.Kvs))
	for _, kv := range page.Kvs {
		objects = append(objects, e.object(kv))
	}
	return objects, page.More && len(objects) > 0, nil
}

func (e end) object(kv *mvccpb.KeyValue) Object {
	return Object{Key: string(kv.Key[len(e.objects):]), Value: kv.Value, Revision: kv.ModRevision, leased: kv.Lease != 0}
}

func (e end) Decode(ctx context.Context, o Object) ([]byte, error) {
	plain, _, err := e.Transformer.TransformFromStorage(ctx, o.Value, value.DefaultContext(e.objects+o.Key))
	if o.leased {
		err = errors.New("it has a lease, which cannot be moved")
	}
	if err != nil {
		return nil, &Refusal{Reason: ReasonUnreadable, Message: fmt.Sprintf("object %s of %s cannot be read: %v", o.Key, e.resource, err)}
	}
	return plain, nil
}

func (e end) Watch(ctx context.Context, after int64) (Watch, error) {
	// A stream of its own: others would wait for this one, and receive its progress notifications.
	ctx = metadata.AppendToOutgoingContext(ctx, "annex-move", string(uuid.NewUUID()))
	responses := e.Watcher.Watch(ctx, e.objects, clientv3.WithPrefix(), clientv3.WithRev(after+1),
		clientv3.WithFragment(), clientv3.WithCreatedNotify())
	events := etcdkv.Watch(ctx, func(send func(Events) bool) {
		for response := range responses {
			if !send(e.decoded(response)) {
				return
			}
		}
	})
	return &etcdWatch{end: e, ctx: ctx, events: events}, nil
}

// etcdWatch is a watch of an etcd. It ends with its context.
type etcdWatch struct {
	end
	ctx    context.Context
	events <-chan Events
}

func (w *etcdWatch) Events() <-chan Events { return w.events }

func (w *etcdWatch) RequestProgress(context.Context, int64) error {
	if err := w.Watcher.RequestProgress(w.ctx); err != nil {
		return fmt.Errorf("request the progress of the source: %w", err)
	}
	return nil
}

// CheckAlive implements Watch. The client of the Store checks its connections, so the watch ends instead.
func (w *etcdWatch) CheckAlive(context.Context) error { return nil }

func (w *etcdWatch) UntilDead(ctx context.Context, measured func()) error {
	measured()
	<-ctx.Done()
	return context.Cause(ctx)
}

func (e end) decoded(response clientv3.WatchResponse) Events {
	if err := response.Err(); err != nil {
		if response.CompactRevision > 0 {
			return Events{Err: ErrCompacted}
		}
		return Events{Err: fmt.Errorf("watch the source: %w", err)}
	}
	events := Events{Current: response.Header.GetRevision(), Changes: make([]Change, 0, len(response.Events))}
	for _, event := range response.Events {
		events.Changes = append(events.Changes, Change{
			Object: e.object(event.Kv), Created: event.IsCreate(), Deleted: event.Type == clientv3.EventTypeDelete,
		})
	}
	switch last := len(events.Changes) - 1; {
	case last >= 0:
		// Events of one revision are in one response, so that it has all of the last one.
		events.Complete = events.Changes[last].Revision
	case response.IsProgressNotify():
		events.Complete = response.Header.GetRevision()
	}
	return events
}
