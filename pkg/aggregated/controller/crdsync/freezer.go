// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
)

// Freezable is a resource where annex keeps it. A freeze.Target is one.
type Freezable interface {
	// Freeze stops all writes, and returns what thaws them.
	Freeze(ctx context.Context) (revision int64, err error)
	// Thaw lets writes pass again, unless the resource was frozen anew.
	Thaw(ctx context.Context, revision int64) error
	// Frozen is what thaws the resource, 0 if it is not frozen.
	Frozen(ctx context.Context) (revision int64, err error)
	// Objects counts the objects.
	Objects(ctx context.Context) (int64, error)
}

// ErrNotPlaced says that a resource has no Store yet, and so no objects.
var ErrNotPlaced = errors.New("the resource has no store yet")

// freezer knows which resources are frozen, for one term. A resource is frozen from
// when its group is about to be given back to the main cluster until it is taken over
// again: each server of the main cluster learns by itself that annex does not answer for
// the group any more, and what it sends until then must not be acknowledged.
type freezer struct {
	// find finds a resource by the name of its definition.
	find func(name string) (Freezable, error)

	mu sync.Mutex
	// known are the revisions at which annex's definitions were frozen, 0 for those that
	// are not.
	known map[frozenKey]int64
}

// frozenKey is a definition of annex's, as name and UID.
type frozenKey struct{ name, uid string }

func keyOf(crd *definition) frozenKey { return frozenKey{crd.Name, string(crd.UID)} }

func (f *freezer) note(crd *definition, revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known[keyOf(crd)] = revision
}

// frozen is the revision at which a resource was frozen, 0 if it is not. It asks once.
func (f *freezer) frozen(ctx context.Context, crd *definition) (int64, error) {
	f.mu.Lock()
	revision, known := f.known[keyOf(crd)]
	f.mu.Unlock()
	if known {
		return revision, nil
	}
	of, err := f.find(crd.Name)
	if errors.Is(err, ErrNotPlaced) {
		return 0, nil
	}
	if err == nil {
		revision, err = of.Frozen(ctx)
	}
	if err == nil {
		f.note(crd, revision)
	}
	return revision, err
}

func (f *freezer) freeze(ctx context.Context, crd *definition) error {
	of, err := f.find(crd.Name)
	if err != nil {
		return wrap(err, "freeze %s: %w", crd.Name)
	}
	revision, err := of.Freeze(ctx)
	if err == nil {
		f.note(crd, revision)
	}
	return err
}

// thaw is for a resource that may be frozen.
func (f *freezer) thaw(ctx context.Context, crd *definition) error {
	revision, err := f.frozen(ctx, crd)
	if err != nil || revision == 0 {
		return err
	}
	of, err := f.find(crd.Name)
	if err != nil {
		return wrap(err, "thaw %s: %w", crd.Name)
	}
	if err := of.Thaw(ctx, revision); err != nil {
		return err
	}
	f.note(crd, 0)
	return nil
}

// hasObjects reports whether annex keeps objects of any of some definitions.
func (f *freezer) hasObjects(ctx context.Context, crds []*definition) (bool, error) {
	for _, crd := range crds {
		of, err := f.find(crd.Name)
		if errors.Is(err, ErrNotPlaced) {
			continue
		}
		if err != nil {
			return false, wrap(err, "count the objects of %s: %w", crd.Name)
		}
		if count, err := of.Objects(ctx); err != nil || count > 0 {
			return count > 0, err
		}
	}
	return false, nil
}

// freezeIfEmpty reports whether annex keeps objects of a group, which giving it back would
// hide. If it keeps none it will get none: the group is frozen then.
func (f *freezer) freezeIfEmpty(ctx context.Context, g *group) (holds bool, err error) {
	var crds []*definition
	for _, name := range slices.Sorted(maps.Keys(g.annex)) {
		crds = append(crds, g.annex[name])
	}
	if holds, err = f.hasObjects(ctx, crds); err != nil {
		return false, err
	}
	if !holds {
		for _, crd := range crds {
			if err := f.freeze(ctx, crd); err != nil {
				return false, err
			}
		}
		if holds, err = f.hasObjects(ctx, crds); err != nil || !holds {
			return false, err
		}
	}
	var errs []error
	for _, crd := range crds {
		errs = append(errs, f.thaw(ctx, crd))
	}
	return true, errors.Join(errs...)
}

// thawUnneeded thaws what is frozen for no reason any more, and reports whether somebody
// began to give the group back.
func (f *freezer) thawUnneeded(ctx context.Context, g *group) (returning bool, err error) {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(g.annex)) {
		crd := g.annex[name]
		revision, err := f.frozen(ctx, crd)
		switch {
		case err != nil:
			errs = append(errs, err)
		case revision == 0:
		case g.main[name] == nil || !isFollower(crd):
			errs = append(errs, f.thaw(ctx, crd))
		case g.isHosted():
			returning = true
		}
	}
	return returning, errors.Join(errs...)
}
