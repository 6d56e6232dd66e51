// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
)

// AllResources stands for all resources of a Store.
var AllResources = schema.GroupResource{}

// highestOffset leaves more revisions above it than an etcd will use.
const highestOffset = 1 << 61

// The offset of a closed resource is followed by one of these and the UID that it is closed for. Releases
// that do not know a mark refuse to serve the resource.
const (
	closedMark   = " closed "
	returnedMark = " returned "
)

// State is the saved state of a resource in a Store.
type State struct {
	// Offset is the higher of the offsets of the resource and of AllResources.
	Offset int64
	// Closed means that the resource is not served from this Store, because it was moved to another
	// one or is still being moved here.
	Closed bool
	// Returned means that it is closed because the main cluster serves it again.
	Returned bool
	// ClosedFor is the UID of the HostedResource that a closed resource is closed for.
	ClosedFor types.UID
	// ModRevision is etcd's revision of the last change of the offset or of Closed, 0 if there was
	// none.
	ModRevision int64

	own int64 // the offset of the resource
}

// Load reads the offset of a resource in the etcd with this prefix: the higher of its own offset
// and the offset of AllResources, 0 if there is none.
func Load(ctx context.Context, annexEtcd clientv3.KV, prefix string, resource schema.GroupResource) (int64, error) {
	state, err := LoadState(ctx, annexEtcd, prefix, resource)
	return state.Offset, err
}

// LoadState reads the state of a resource in the etcd with this prefix.
func LoadState(ctx context.Context, annexEtcd clientv3.KV, prefix string, resource schema.GroupResource) (State, error) {
	ofWhole, ofResource := key(prefix, AllResources), key(prefix, resource)
	r, err := annexEtcd.Txn(ctx).Then(clientv3.OpGet(ofWhole), clientv3.OpGet(ofResource)).Commit()
	if err != nil {
		return State{}, fmt.Errorf("read %s and %s: %w", ofWhole, ofResource, err)
	}
	whole, err := Of(r.Responses[0].GetResponseRange().Kvs)
	if err != nil {
		return State{}, err
	}
	state, err := Of(r.Responses[1].GetResponseRange().Kvs)
	if err != nil {
		return State{}, err
	}
	state.Offset = max(state.own, whole.own)
	return state, nil
}

// Save raises the offset of a resource, or of AllResources, to at least this. It never lowers it
// and is idempotent. A closed resource stays closed.
func Save(ctx context.Context, annexEtcd clientv3.KV, prefix string, resource schema.GroupResource, offset int64) error {
	key := key(prefix, resource)
	if err := checkOffset(offset); err != nil {
		return fmt.Errorf("save %s: %w", key, err)
	}
	for {
		before, err := load(ctx, annexEtcd, key)
		if err != nil || before.own >= offset {
			return err
		}
		after := before
		after.own = offset
		r, err := annexEtcd.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", before.ModRevision)).
			Then(clientv3.OpPut(key, after.encode())).
			Commit()
		if err != nil {
			return fmt.Errorf("save %s: %w", key, err)
		}
		if r.Succeeded {
			return nil
		}
	}
}

// Put returns the operation that sets the offset of AllResources.
func Put(prefix string, offset int64) (clientv3.Op, error) {
	return put(prefix, AllResources, State{own: offset}), checkOffset(offset)
}

// Close returns the operation that closes a resource in the Store for a HostedResource. It keeps
// the offset.
func Close(prefix string, resource schema.GroupResource, before State, hosted types.UID) clientv3.Op {
	return put(prefix, resource, State{own: before.own, Closed: true, ClosedFor: hosted})
}

// Return returns the operation that closes a resource because the main cluster serves it again.
func Return(prefix string, resource schema.GroupResource, before State, hosted types.UID) clientv3.Op {
	return put(prefix, resource, State{own: before.own, Closed: true, Returned: true, ClosedFor: hosted})
}

func checkOffset(offset int64) error {
	if offset < 0 || offset > highestOffset {
		return fmt.Errorf("an offset of revisions cannot be %d, only 0 to %d", offset, int64(highestOffset))
	}
	return nil
}

func put(prefix string, resource schema.GroupResource, s State) clientv3.Op {
	return clientv3.OpPut(key(prefix, resource), s.encode())
}

// Open returns the operation that opens a resource in the Store, with an offset of at least this.
func Open(prefix string, resource schema.GroupResource, before State, offset int64) (clientv3.Op, error) {
	return put(prefix, resource, State{own: max(before.own, offset)}), checkOffset(offset)
}

// Unchanged returns the condition that nothing was saved for a resource since a state was read.
func Unchanged(prefix string, resource schema.GroupResource, since State) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key(prefix, resource)), "=", since.ModRevision)
}

func load(ctx context.Context, annexEtcd clientv3.KV, key string) (State, error) {
	r, err := annexEtcd.Get(ctx, key)
	if err != nil {
		return State{}, fmt.Errorf("read %s: %w", key, err)
	}
	return Of(r.Kvs)
}

func (s State) encode() string {
	offset := strconv.FormatInt(s.own, 10)
	switch {
	case s.Returned:
		return offset + returnedMark + string(s.ClosedFor)
	case s.Closed:
		return offset + closedMark + string(s.ClosedFor)
	}
	return offset
}

// Of returns the state that was found at one key, keys.Revision of a resource. It does not include the state of
// AllResources.
func Of(found []*mvccpb.KeyValue) (State, error) {
	if len(found) == 0 {
		return State{}, nil
	}
	text, closedFor, returned := strings.Cut(string(found[0].Value), returnedMark)
	closed := returned
	if !returned {
		text, closedFor, closed = strings.Cut(text, closedMark)
	}
	offset, err := strconv.ParseInt(text, 10, 64)
	if err != nil || checkOffset(offset) != nil {
		// Resource versions would decrease without it.
		return State{}, fmt.Errorf("%s holds %q, which is no offset of revisions", found[0].Key, found[0].Value)
	}
	return State{
		Offset: offset, Closed: closed, Returned: returned, ClosedFor: types.UID(closedFor), ModRevision: found[0].ModRevision, own: offset,
	}, nil
}

func key(prefix string, resource schema.GroupResource) string {
	if resource == AllResources {
		return keys.Revisions(prefix)
	}
	return keys.Revision(prefix, resource)
}

// Raise saves an offset that raises the next revision of a resource, or of AllResources, above
// floor, unless the saved one already does.
func Raise(ctx context.Context, annexEtcd clientv3.KV, prefix string, resource schema.GroupResource, floor int64) error {
	now, err := annexEtcd.Get(ctx, keys.Revisions(prefix), clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("read the revision of etcd: %w", err)
	}
	offset := floor - now.Header.GetRevision()
	if offset <= 0 {
		return nil
	}
	saved, err := Load(ctx, annexEtcd, prefix, resource)
	if err != nil || saved >= offset {
		return err
	}
	return Save(ctx, annexEtcd, prefix, resource, offset)
}

// HighestOffset reads the highest offset of any resource in the etcd with this prefix.
func HighestOffset(ctx context.Context, annexEtcd clientv3.KV, prefix string) (int64, error) {
	all := keys.Revisions(prefix)
	found, err := annexEtcd.Get(ctx, all, clientv3.WithPrefix())
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", all, err)
	}
	return HighestOf(found.Kvs)
}

// HighestOf returns the highest offset in the keys below keys.Revisions.
func HighestOf(found []*mvccpb.KeyValue) (int64, error) {
	var highest int64
	for i := range found {
		saved, err := Of(found[i : i+1])
		if err != nil {
			return 0, err
		}
		highest = max(highest, saved.own)
	}
	return highest, nil
}
