// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
)

// ErrCompacted means that a Source no longer has a revision.
var ErrCompacted = errors.New("the revision of the source was compacted")

// Source has the objects of a resource: a Store or the API of another API server. Each change of an object
// increases its revision.
type Source interface {
	// Count returns about how many objects there are.
	Count(ctx context.Context) (int64, error)
	// Revision returns a revision that includes all changes that were acknowledged before the call.
	Revision(ctx context.Context) (int64, error)
	// Page returns at most so many objects after a key, in the order of their keys, as they were at a revision. more
	// means that there may be others. An error is ErrCompacted if the revision is too old.
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
	// Value is the input of Decode.
	Value []byte
	// Revision is the revision of its last change.
	Revision int64

	leased bool // etcd would delete it
}

// Watch is a watch of a Source.
type Watch interface {
	// Events returns a channel that is closed when the watch has ended.
	Events() <-chan Events
	// RequestProgress requests Events with a Complete of at least wanted, or recent ones for 0. They may not come.
	RequestProgress(ctx context.Context, wanted int64) error
	// CheckAlive fails unless the server that sends the watch reads from its etcd. Otherwise the watch is silent.
	CheckAlive(ctx context.Context) error
	// UntilDead returns an error once that fails. It calls measured once it knows how long the server takes to answer.
	UntilDead(ctx context.Context, measured func()) error
}

// Events are consecutive changes of a Source.
type Events struct {
	Changes []Change
	// Complete is the revision up to which the watch has delivered all changes, 0 if it is not known.
	Complete int64
	// Current is the highest revision of the source that is known.
	Current int64
	// Err ends the watch. It is ErrCompacted if changes were missed.
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
