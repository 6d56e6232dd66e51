// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
)

// ErrCompacted means that a Source no longer has a revision.
var ErrCompacted = errors.New("the revision of the source was compacted")

// Source has the objects of a resource. It is a Store or the API of another API server. Revisions
// increase with each change of an object.
type Source interface {
	// Count returns about how many objects there are.
	Count(ctx context.Context) (int64, error)
	// Revision returns a revision that is at least that of each change that was acknowledged before
	// the call.
	Revision(ctx context.Context) (int64, error)
	// Page returns at most so many objects, in the order of their keys, which come after a key, as
	// they were at a revision. more means that there may be others after them. An error is
	// ErrCompacted if the revision is too old.
	Page(ctx context.Context, after string, limit, revision int64) (objects []Object, more bool, err error)
	// Decode returns the value of an object as it is stored, before compression and encryption, or a
	// *Refusal if it cannot be read.
	Decode(ctx context.Context, o Object) ([]byte, error)
	// Watch watches all objects from the first change after a revision, until ctx is done.
	Watch(ctx context.Context, after int64) (Watch, error)
}

// Object is an object of a Source.
type Object struct {
	// Key is the name, or the namespace and the name with a slash between.
	Key string
	// Value is what Decode decodes.
	Value []byte
	// Revision is that of its last change.
	Revision int64

	leased bool // etcd would delete it
}

// Watch is a watch of a Source.
type Watch interface {
	// Events returns a channel that is closed when the watch has ended.
	Events() <-chan Events
	// RequestProgress asks for Events with a Complete of at least wanted, and for recent ones if that is
	// 0. Neither is certain.
	RequestProgress(ctx context.Context, wanted int64) error
	// CheckAlive fails unless the server that sends the watch reads from its etcd. A watch of one that does not
	// is silent until the loss of a connection is known.
	CheckAlive(ctx context.Context) error
	// UntilDead checks that all the time, and returns an error once it fails. It calls measured once it has measured how long
	// the server takes to answer.
	UntilDead(ctx context.Context, measured func()) error
}

// Events are consecutive changes of a Source.
type Events struct {
	Changes []Change
	// Complete is a revision: with these events the watch has delivered all changes up to it. It is 0
	// if it is not known.
	Complete int64
	// Current is the highest revision of the source that is known.
	Current int64
	// Err is why the watch ends. It is ErrCompacted if changes were missed.
	Err error
}

// Change is a change of an object. Revisions of a watch never decrease, and changes of one revision are in
// the same Events.
type Change struct {
	// Object is the one that was created or updated. A deletion has only the key and the revision.
	Object
	// Created and Deleted are exclusive.
	Created, Deleted bool
}
