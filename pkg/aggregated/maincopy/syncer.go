// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/annex-dev/annex/pkg/storage/move"
)

// retryDelay is the delay after an error of a list or a watch.
const retryDelay = 500 * time.Millisecond

// Progress is how far a Syncer is.
type Progress struct {
	// Compared is the number of objects, on either side, that were compared since Run or the last gap.
	Compared int64
	// Pending is the number of those that are not written yet.
	Pending int64
	// Written is the number of writes to the main cluster.
	Written int64
	// Verified is the number of objects that Verify has compared.
	Verified int64
}

// Origin is a resource in annex's Store. A *move.Exporter is one.
type Origin interface {
	move.Source
	PairRecord
}

// Syncer makes the main cluster's copy of a resource equal to annex's objects. The copy has to be
// open; a Syncer opens it again if another client closes it.
type Syncer struct {
	copy     *Copy
	resource Resource
	annex    Origin
	pairs    *Pairs
	queue    *queue

	compared, written, verified atomic.Int64
	reopening                   sync.Mutex

	mu       sync.Mutex
	seen     int64 // the revision of annex up to which all changes are queued
	wanted   int64 // the revision that Drain waits for
	walked   bool  // whether all objects were compared since the last gap
	failed   error // of the last list or watch
	progress chan struct{}
}

// NewSyncer returns a Syncer for a resource. It does nothing before Run. Objects are read from annex's
// API, and annex says which of them change.
func (c *Copy) NewSyncer(resource Resource, annex Origin, pairs *Pairs) (*Syncer, error) {
	if !resource.StoredIsServed {
		return nil, fmt.Errorf("copy %s to the main cluster: its storage version %s is not served, so annex's objects cannot be read in it", resource.Name, resource.Stored.Version)
	}
	return &Syncer{copy: c, resource: resource, annex: annex, pairs: pairs, queue: newQueue(), progress: make(chan struct{})}, nil
}

// Progress returns how far the Syncer is.
func (s *Syncer) Progress() Progress {
	return Progress{Compared: s.compared.Load(), Written: s.written.Load(), Pending: s.queue.len(), Verified: s.verified.Load()}
}

// Problem returns why the Syncer does not advance, or nil. It tries again until the context of
// Run is done.
func (s *Syncer) Problem() error {
	s.mu.Lock()
	failed := s.failed
	s.mu.Unlock()
	return errors.Join(failed, s.queue.problem())
}

func (s *Syncer) wrote() { s.written.Add(1) }

func (s *Syncer) annexObjects(namespace string) dynamic.ResourceInterface {
	return s.resource.in(s.copy.annex, s.resource.Stored, namespace)
}

func (s *Syncer) mainObjects(namespace string) dynamic.ResourceInterface {
	return s.resource.in(s.copy.objects, s.resource.Opened(), namespace)
}

// Run compares all objects, and then follows annex until ctx is done, whose error it returns. It ends with
// an error if it has to delete an object whose namespace is gone, which Open does.
// It calls caughtUp once, when the copy lags by no more than the requests in flight.
func (s *Syncer) Run(ctx context.Context, caughtUp func()) error {
	group, running := errgroup.WithContext(ctx)
	for range Workers {
		group.Go(func() error { return s.work(running) })
	}
	group.Go(func() error { return s.feed(running) })
	group.Go(func() error {
		if err := s.until(running, func() bool { return s.walked }); err != nil {
			return err
		}
		if err := s.queue.idle(running, Workers); err != nil {
			return err
		}
		caughtUp()
		return nil
	})
	return group.Wait()
}

// work handles keys.
func (s *Syncer) work(ctx context.Context) error {
	for {
		k, err := s.queue.get(ctx)
		if err != nil {
			return err
		}
		err = s.reconcile(ctx, k)
		if errors.Is(err, errStale) {
			return fmt.Errorf("%s: %w", k, err)
		}
		s.queue.done(k, s.reopen(ctx, err))
	}
}

// reopen opens the copy again if that is why an error happened, and returns the error.
func (s *Syncer) reopen(ctx context.Context, err error) error {
	if !isUnserved(err) {
		return err
	}
	s.reopening.Lock()
	defer s.reopening.Unlock()
	open, checkErr := s.copy.IsOpen(ctx, s.resource.Stored.Group)
	if checkErr == nil && !open {
		_, checkErr = s.copy.openVersion(ctx, s.resource.Stored.Group)
	}
	return errors.Join(err, checkErr)
}

// feed queues the keys that differ, and those that change in annex. After a gap in the watch it
// compares all objects again.
func (s *Syncer) feed(ctx context.Context) error {
	for {
		err := s.reopen(ctx, s.walkAndFollow(ctx))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.set(func() { s.failed = err })
		if !errors.Is(err, move.ErrCompacted) && !pause(ctx) {
			return ctx.Err()
		}
	}
}

// pause waits before another attempt. It returns false when ctx is done.
func pause(ctx context.Context) bool {
	timer := time.NewTimer(retryDelay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (s *Syncer) walkAndFollow(ctx context.Context) error {
	revision, err := s.annex.Revision(ctx)
	if err != nil {
		return fmt.Errorf("read annex's revision of %s: %w", s.resource.Name, err)
	}
	s.set(func() { s.walked, s.seen = false, revision })
	s.compared.Store(0)
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return s.follow(running) })
	group.Go(func() error {
		if err := s.queueDiffering(running); err != nil {
			return err
		}
		s.set(func() { s.walked, s.failed = true, nil })
		return nil
	})
	return group.Wait()
}

// queueDiffering queues what differs. Objects that differ only in their resource versions, as most do, are
// written at once, because both were just read.
func (s *Syncer) queueDiffering(ctx context.Context) error {
	touching, running := errgroup.WithContext(ctx)
	touching.SetLimit(Workers)
	err := eachPair(running, newPages(s.copy.annex, s.resource.Stored), newPages(s.copy.objects, s.resource.Opened()), func(annex, main *unstructured.Unstructured) error {
		if annex != nil {
			s.waitForOwners(annex)
		}
		same, err := s.sameObject(annex, main)
		if err != nil {
			return err
		}
		if same {
			touching.Go(func() error {
				defer s.compared.Add(1)
				return s.touch(running, annex, main)
			})
			return nil
		}
		s.compared.Add(1)
		if annex == nil {
			annex = main
		}
		return s.queue.addWhenShort(running, keyOf(annex))
	})
	return errors.Join(err, touching.Wait())
}

// touch makes the resource version of an object newer than annex's. If that fails, the object is queued.
func (s *Syncer) touch(ctx context.Context, annex, main *unstructured.Unstructured) error {
	newer, err := isNewer(main, annex)
	if err != nil || newer {
		return err
	}
	if err := s.makeNewer(ctx, annex, main); err != nil {
		s.queue.add(keyOf(annex))
	}
	return ctx.Err()
}

// same compares all that a Syncer writes.
func (s *Syncer) same(annex, main *unstructured.Unstructured) (bool, error) {
	same, err := s.sameObject(annex, main)
	if err != nil || !same {
		return false, err
	}
	return isNewer(main, annex)
}

// sameObject compares all except the resource version. Both may be nil.
func (s *Syncer) sameObject(annex, main *unstructured.Unstructured) (bool, error) {
	if annex == nil || main == nil || !s.isFor(main, annex) || isTerminating(annex) != isTerminating(main) {
		return false, nil
	}
	same, err := sameContent(annex, main, s.pairs.inMain)
	if err != nil || !same {
		return false, err
	}
	return sameManagedFields(annex, main, s.pairs.inMain)
}

// set changes what until waits for.
func (s *Syncer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.progress)
	s.progress = make(chan struct{})
}

// until returns when a condition holds. It is called with the lock.
func (s *Syncer) until(ctx context.Context, condition func() bool) error {
	for {
		s.mu.Lock()
		holds, changed := condition(), s.progress
		s.mu.Unlock()
		if holds {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
