// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/annex-dev/annex/pkg/storage/layer/revision"
)

// Importer moves a resource from the main cluster into a Store. Its methods may be repeated like the Mover's.
type Importer struct {
	*copier
	// held is set once Fence was called.
	held bool
	// verified is one more than the restarts before the copy was verified.
	verified atomic.Int64
}

// NewImporter returns an Importer. It does nothing until one of its methods is called.
func NewImporter(config Config) *Importer {
	c := newCopier(config, config.Source)
	c.imports = true
	return &Importer{copier: c}
}

// Verify does as Mover.Verify. It reads a copy that it has verified only if it began again since: each later change was
// applied.
func (i *Importer) Verify(ctx context.Context) error {
	next := i.restarts.Load() + 1
	if i.verified.Load() == next {
		return nil
	}
	err := i.copier.Verify(ctx)
	if err == nil {
		i.verified.Store(next)
	}
	return err
}

// Check returns a *Refusal if the Store cannot take the resource. It changes nothing.
func (i *Importer) Check(ctx context.Context) error {
	_, err := i.checkArrival(ctx)
	return err
}

// Copy closes the target, and copies all objects. It continues an earlier copy.
func (i *Importer) Copy(ctx context.Context) error {
	if err := i.Claim(ctx); err != nil {
		return err
	}
	t, err := i.begin(ctx, i.from)
	if err == nil {
		t.total, err = i.from.Count(ctx)
	}
	if err != nil {
		return err
	}
	return t.run(ctx, func() (bool, error) { return t.record.Copied, nil })
}

// Claim closes the target, as Copy does.
func (i *Importer) Claim(ctx context.Context) error {
	arrival, err := i.checkArrival(ctx)
	if err != nil {
		return err
	}
	now, err := i.from.Revision(ctx)
	if err != nil {
		return err
	}
	return i.claim(ctx, arrival, now)
}

// begin fences all others at the target. It copies from a Source.
func (i *Importer) begin(ctx context.Context, from Source) (*term, error) {
	now, err := from.Revision(ctx)
	if err != nil {
		return nil, err
	}
	t, err := i.fence(ctx, now)
	if err != nil {
		return nil, err
	}
	t.source = from
	return t, nil
}

// Open opens a target that has all changes of the source, with resource versions above a revision. An
// earlier Follow ended after all resources of a group had every change and one of them was open.
func (i *Importer) Open(ctx context.Context, lowest int64) error {
	t, err := i.fence(ctx, lowest)
	if err != nil || t.record.Phase != "" {
		return err
	}
	if !t.record.Copied {
		return ErrNotCopied
	}
	return t.openAbove(ctx, lowest+importGap)
}

// Fence fences all other Importers of a move that has begun, and returns its State.
func (i *Importer) Fence(ctx context.Context) (State, error) {
	i.held = true
	if state, err := i.State(ctx); err != nil || state == Absent {
		return state, err
	}
	if _, err := i.to.fence(ctx, i.copier); err != nil {
		return "", err
	}
	return i.State(ctx)
}

// Adopt records that the target serves the objects that it has, without a copy.
func (i *Importer) Adopt(ctx context.Context) error {
	arrival, err := i.to.read(ctx)
	switch {
	case err != nil:
		return err
	case arrival.UID == i.uid && arrival.Phase == Adopted:
		return nil
	case arrival.UID == i.uid || !arrival.hasEnded():
		return fmt.Errorf("adopt the objects of %s: %w", i.resource, ErrFenced)
	}
	arrival.record = record{UID: i.uid, Holder: i.holder, Imported: true, Phase: Adopted}
	return i.to.write(ctx, &arrival)
}

// Raise makes the resource versions of the target higher than one, if they are not yet. It ends all watches then.
func (i *Importer) Raise(ctx context.Context, above int64) error {
	return revision.Raise(ctx, i.to.KV, i.to.Prefix, i.resource, above)
}

// Cancel deletes what was copied, or leaves what was adopted, and ends the move: its State is Cleaned. Once the target is
// open it returns ErrSwitched. After Fence it returns ErrFenced if another Importer has fenced this one since.
func (i *Importer) Cancel(ctx context.Context) error {
	arrival, err := i.to.read(ctx)
	switch {
	case err != nil:
		return err
	case arrival.UID == i.uid && arrival.Phase == Switched:
		return ErrSwitched
	case i.held && arrival.UID == i.uid && arrival.Holder != i.holder:
		return fmt.Errorf("cancel the move of %s: %w", i.resource, ErrFenced)
	}
	return i.discard(ctx, arrival)
}
