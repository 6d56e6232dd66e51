// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/storage/move"
)

// Origin is a resource in annex's Store. A *move.Exporter is one.
type Origin interface {
	move.Source
	PairRecord
}

// target is the main cluster's copy of a resource. It has to be open; if another client closes it, it is opened again.
type target struct {
	copy     *Copy
	resource Resource
	annex    Origin
	pairs    *Pairs
	pages    *Source
	// syncer writes to it.
	syncer *move.Syncer

	written   atomic.Int64
	reopening sync.Mutex
}

var _ move.Target = &target{}

// NewSyncer returns what makes the main cluster's copy of a resource equal to annex's objects. They are read from
// annex's API, in the version in which the main cluster stores them. A watch of annex's Store reports which of them change.
func (c *Copy) NewSyncer(resource Resource, annex Origin, pairs *Pairs) (*move.Syncer, error) {
	if resource.Served != resource.Stored {
		return nil, fmt.Errorf("copy %s to the main cluster: its storage version %s is not served, so annex's objects cannot be read in it", resource.Name, resource.Stored.Version)
	}
	t := &target{copy: c, resource: resource, annex: annex, pairs: pairs, pages: c.InMain(resource.Opened())}
	t.syncer = move.NewSyncer(annexSource{annex, c.InAnnex(resource.Stored)}, t, c.pace)
	return t.syncer, nil
}

// annexSource reads pages from annex's API, and everything else from its Store.
type annexSource struct {
	move.Source
	pages *Source
}

// Page implements move.Source.
func (s annexSource) Page(ctx context.Context, after string, limit, _ int64) ([]move.Object, bool, error) {
	return s.pages.Page(ctx, after, limit, 0)
}

// Decode implements move.Source. Changes have the value of the Store, which is not used.
func (s annexSource) Decode(_ context.Context, o move.Object) ([]byte, error) { return o.Value, nil }

// Page implements move.Target.
func (t *target) Page(ctx context.Context, after string, limit, revision int64) ([]move.Object, bool, error) {
	objects, more, err := t.pages.Page(ctx, after, limit, revision)
	return objects, more, t.reopen(ctx, err)
}

// Equal implements move.Target. It compares all that Write writes.
func (t *target) Equal(_ context.Context, from, to move.Object) (bool, error) {
	annex, main, err := decode(from, to)
	if err != nil {
		return false, err
	}
	t.waitForOwners(annex)
	if newer, err := isNewer(main, annex); err != nil || !newer {
		return false, err
	}
	return t.same(annex, main)
}

func decode(from, to move.Object) (annex, main *unstructured.Unstructured, err error) {
	annex, main = &unstructured.Unstructured{}, &unstructured.Unstructured{}
	if err := errors.Join(annex.UnmarshalJSON(from.Value), main.UnmarshalJSON(to.Value)); err != nil {
		return nil, nil, fmt.Errorf("decode %s: %w", from.Key, err)
	}
	annex.SetResourceVersion(strconv.FormatInt(from.Revision, 10))
	main.SetResourceVersion(strconv.FormatInt(to.Revision, 10))
	return annex, main, nil
}

// same compares all except the resource version.
func (t *target) same(annex, main *unstructured.Unstructured) (bool, error) {
	if !t.isFor(main, annex) || isTerminating(annex) != isTerminating(main) {
		return false, nil
	}
	same, err := sameContent(annex, main, t.pairs.inMain)
	if err != nil || !same {
		return false, err
	}
	return sameManagedFields(annex, main, t.pairs.inMain)
}

// Write implements move.Target.
func (t *target) Write(ctx context.Context, key string, from, to *move.Object) error {
	return t.reopen(ctx, t.write(ctx, key, from, to))
}

func (t *target) write(ctx context.Context, key string, from, to *move.Object) error {
	if from != nil && to != nil {
		annex, main, err := decode(*from, *to)
		if err != nil {
			return err
		}
		return t.makeSame(ctx, annex, main)
	}
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return fmt.Errorf("write an object: %w", err)
	}
	for range attempts {
		err = t.compareAndWrite(ctx, namespace, name)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !isMissing(err) {
			return err
		}
	}
	return err
}

// IsFinal implements move.Target: Open deletes objects whose namespace is gone.
func (t *target) IsFinal(err error) bool { return errors.Is(err, errStale) }

// Written implements move.Target.
func (t *target) Written() int64 { return t.written.Load() }

func (t *target) mainObjects(namespace string) dynamic.ResourceInterface {
	return t.copy.objects.Resource(t.resource.Opened()).Namespace(namespace)
}

// reopen opens the copy again after an error whose cause is a closed copy, and returns the error.
func (t *target) reopen(ctx context.Context, err error) error {
	if !isUnserved(err) {
		return err
	}
	t.reopening.Lock()
	defer t.reopening.Unlock()
	open, checkErr := t.copy.IsOpen(ctx, t.resource.Stored.Group)
	if checkErr == nil && !open {
		_, checkErr = t.copy.openVersion(ctx, t.resource.Stored.Group)
	}
	return errors.Join(err, checkErr)
}
