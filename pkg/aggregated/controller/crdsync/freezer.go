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

// Freezable is a resource in annex's storage. A freeze.Target is one.
type Freezable interface {
	// Freeze stops all writes. Thaw needs the revision that it returns.
	Freeze(ctx context.Context) (revision int64, err error)
	// Thaw permits writes again, unless the resource was frozen anew.
	Thaw(ctx context.Context, revision int64) error
	// Frozen returns the revision of the freeze, 0 if there is none.
	Frozen(ctx context.Context) (revision int64, err error)
	// Objects counts the objects.
	Objects(ctx context.Context) (int64, error)
}

// ErrNotPlaced is returned for a resource that has no Store, and so no objects.
var ErrNotPlaced = errors.New("the resource has no store yet")

// freezer caches which resources are frozen, for one leadership. A resource is frozen
// from the moment its group is about to return to the main cluster until it is taken over
// again: each kube-apiserver learns separately that annex no longer serves the group, and
// the writes that it sends until then must not be acknowledged.
type freezer struct {
	// find finds a resource by the name of its definition.
	find func(name string) (Freezable, error)

	mu sync.Mutex
	// known are the revisions at which definitions were frozen, 0 for those that are not.
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

// frozen returns the revision at which a resource was frozen, 0 if it is not. It reads
// once.
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

// thaw accepts resources that are not frozen.
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

// hasObjects reports whether annex stores objects of any of the definitions.
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

// freezeIfEmpty reports whether annex stores objects of a group, which returning it would
// hide. If there are none it freezes the group, so there will be none.
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

// thawUnneeded thaws resources that need not be frozen, and reports whether a return of
// the group has begun.
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
