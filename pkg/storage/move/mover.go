// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
)

// Config describes a move between two Stores, into one or out of one.
type Config struct {
	Resource schema.GroupResource
	// UID identifies the move: the UID of the Migration.
	UID types.UID
	// HostedResource is the UID of the HostedResource, for which a Store is closed.
	HostedResource types.UID
	From, To       End
	// Source replaces From in an Importer.
	Source Source
	// CopyDictionaries copies what values need to be small, before the first value is copied. It may be nil.
	CopyDictionaries func(ctx context.Context) error
	// Pace is shared by the Importers of a Source. It may be nil.
	Pace *Pace
	// Limit is in objects per second that are copied, nil without a limit. Changes are not limited.
	Limit *rate.Limiter
	// Report is called with the progress after each batch, and at least once a second while a Mover
	// follows. It may be nil, and must not block.
	Report func(Progress)
}

// Progress counts the objects of a copy.
type Progress struct {
	// Total is the number of objects at the source when it was counted, 0 in Follow.
	Total int64
	// Copied is the number of objects that were copied, without changes, and Bytes the size of their decoded values.
	Copied, Bytes int64
	// Lag is the number of revisions of the source's etcd that are not applied yet.
	Lag int64
	// Pending is the number of objects that a Syncer has to write, and Written how many writes it has made.
	Pending, Written int64
}

// State is the progress of a move that is recorded at both ends.
type State string

// States of a move. Closed is refused by Cancel, and completed by Switch.
const (
	Absent    State = "Absent"    // it has not begun, or was canceled
	Copying   State = "Copying"   // the target has a part of the objects
	Following State = "Following" // the target has all objects, perhaps without the latest changes
	Frozen    State = "Frozen"    // the source takes no writes
	Closed    State = "Closed"    // the source is closed, and the target is not open yet
	Switched  State = "Switched"  // the target is open
	Adopted   State = "Adopted"   // the target serves the objects that it had before, and nothing was copied
	Cleaned   State = "Cleaned"   // the source has no objects any longer, or the move was canceled
)

var (
	// ErrFenced means that another process has fenced this one, or that the Store is not as it was.
	ErrFenced = errors.New("another process has taken over the move")
	// ErrSwitched means that the source is closed, after which a move can only be completed.
	ErrSwitched = errors.New("the resource was switched to the new Store already, the move can only be completed")
	// ErrNotCopied means that the target does not have all objects.
	ErrNotCopied = errors.New("not all objects were copied")
	// ErrEnded means that the move was canceled or is complete.
	ErrEnded = errors.New("the move has ended")
)

// Refusal is an error that ends a move for good.
type Refusal struct {
	// Reason is one of the constants Reason…, or of another package.
	Reason string
	// Message is for users.
	Message string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Message }

func refuse(resource schema.GroupResource, reason, format string, arguments ...any) error {
	return &Refusal{Reason: reason, Message: fmt.Sprintf("%s cannot be moved: %s", resource, fmt.Sprintf(format, arguments...))}
}

// Reasons of a Refusal.
const (
	ReasonMoving     = "Moving"     // another move has begun
	ReasonFrozen     = "Frozen"     // an end is frozen for another purpose
	ReasonClosed     = "Closed"     // the source is closed
	ReasonNotEmpty   = "NotEmpty"   // the target has objects of the resource
	ReasonUnreadable = "Unreadable" // an object cannot be read
)

// Mover moves a resource. Verify and State may be called at any time. Of the other methods the
// last one that is called fences those before, which return ErrFenced.
type Mover struct {
	*copier
	from             end
	copyDictionaries func(ctx context.Context) error
}

// New returns a Mover. It does nothing until one of its methods is called.
func New(config Config) *Mover {
	from := newEnd(config.From, config.Resource, keys.Departure(config.From.Prefix, config.Resource))
	return &Mover{
		copier: newCopier(config, from), from: from, copyDictionaries: config.CopyDictionaries,
	}
}

// State reads how far the move is.
func (m *Mover) State(ctx context.Context) (State, error) {
	state, err := m.copier.State(ctx)
	if state != Copying && state != Following {
		return state, err
	}
	departure, err := m.from.read(ctx)
	switch {
	case err != nil:
		return "", err
	case departure.UID == m.uid && departure.state.Closed:
		return Closed, nil
	case departure.UID == m.uid && departure.frozenFor == m.uid:
		return Frozen, nil
	}
	return state, nil
}

// Check returns a *Refusal if the resource cannot be moved. It changes nothing.
func (m *Mover) Check(ctx context.Context) error {
	_, _, err := m.check(ctx)
	return err
}

// check also returns what both ends have.
func (m *Mover) check(ctx context.Context) (departure, arrival stored, err error) {
	if departure, err = m.from.read(ctx); err == nil {
		arrival, err = m.checkArrival(ctx)
	}
	if err == nil && arrival.UID != m.uid { // it has not begun
		err = m.from.checkDeparture(departure, m.uid, m.uid)
	}
	return departure, arrival, err
}

// begin fences all other Movers, and claims both ends if the move has not begun.
func (m *Mover) begin(ctx context.Context) (*tenure, error) {
	departure, arrival, err := m.check(ctx)
	if err != nil {
		return nil, err
	}
	if departure.UID != m.uid {
		departure.record = record{UID: m.uid, Holder: m.holder}
		if err := m.from.write(ctx, &departure); err != nil {
			return nil, err
		}
	}
	if err := m.claim(ctx, arrival, departure.revision); err != nil {
		return nil, err
	}
	t, err := m.fence(ctx)
	if err != nil {
		return nil, err
	}
	t.total, err = m.from.Count(ctx)
	return t, err
}

// tenure is the time in which a Mover holds both records.
type tenure struct {
	*term
	from      end
	departure stored
}

// fence fences all other Movers.
func (m *Mover) fence(ctx context.Context) (*tenure, error) {
	departure, err := m.from.fence(ctx, m.copier)
	if err != nil {
		return nil, err
	}
	t, err := m.copier.fence(ctx, departure.revision)
	return &tenure{term: t, from: m.from, departure: departure}, err
}

// run copies until done, and returns ErrSwitched if the source is closed.
func (t *tenure) run(ctx context.Context, done func() (bool, error)) error {
	if t.departure.state.Closed {
		return ErrSwitched
	}
	return t.term.run(ctx, done)
}

// Copy copies all objects. It continues an earlier copy.
func (m *Mover) Copy(ctx context.Context) error {
	t, err := m.begin(ctx)
	if err != nil {
		return err
	}
	if m.copyDictionaries != nil && !t.record.Copied {
		if err := m.copyDictionaries(ctx); err != nil {
			return fmt.Errorf("copy the dictionaries of %s: %w", m.resource, err)
		}
	}
	return t.run(ctx, func() (bool, error) { return t.record.Copied, nil })
}

// Follow applies changes of the source until ctx is done, which is no error. It calls caughtUp once,
// when the target has all that the source had when Follow was called.
func (m *Mover) Follow(ctx context.Context, caughtUp func()) error {
	t, err := m.fence(ctx)
	if err != nil {
		return err
	}
	caughtUp = sync.OnceFunc(caughtUp)
	err = t.run(ctx, func() (bool, error) {
		if t.isCaughtUp() {
			caughtUp()
		}
		return false, nil
	})
	if ctx.Err() != nil {
		err = nil
	}
	return err
}
