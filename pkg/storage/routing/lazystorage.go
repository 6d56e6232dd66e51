// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"github.com/annex-dev/annex/pkg/storage/compression"
)

const (
	// placementTimeout is how long a request waits for a Store to be chosen, which
	// takes milliseconds if there is one.
	placementTimeout = 2 * time.Second
	// prepareTimeout bounds what the storage of annex's own kinds may need of etcd
	// when it is made.
	prepareTimeout = 30 * time.Second
	// prepareInterval is how often the storage of others is tried to be made.
	prepareInterval = time.Second
)

var errDestroyed = errors.New("the storage has been closed")

// lazyStorage is the storage of a resource. It finds its Store when it is first used, and
// begins again if the data of the Store are replaced or the resource is elsewhere.
type lazyStorage struct {
	route  route
	store  func(name string) (Store, error)
	config storageConfig

	// building is held by who makes or destroys the backend. Unlike a mutex it lets
	// others give up.
	building  chan struct{}
	backend   atomic.Pointer[backend]
	destroyed bool

	// preparing is what prepareSoon started, and stopPreparing ends it.
	preparing     sync.WaitGroup
	stopPreparing func()
}

var _ storage.Interface = &lazyStorage{}

func newLazyStorage(to route, store func(string) (Store, error), recipe storageConfig) *lazyStorage {
	return &lazyStorage{route: to, store: store, config: recipe, building: make(chan struct{}, 1), stopPreparing: func() {}}
}

// prepare makes the backend before it is used.
func (s *lazyStorage) prepare() error {
	ctx, cancel := context.WithTimeout(context.Background(), prepareTimeout)
	defer cancel()
	_, err := s.getBackend(ctx)
	return err
}

// prepareInBackground has the backend made as soon as there is a Store for it, and anew when
// there is another in its place or the resource is elsewhere: watches of the old one end. Upstream makes
// all versions of a custom resource when one is asked for, and so their watch caches
// begin at the same time: who has a resource version from one can watch another.
func (s *lazyStorage) prepareInBackground() {
	ctx, cancel := context.WithCancel(context.Background())
	s.stopPreparing = cancel
	s.preparing.Go(func() {
		for s.waitPlaced(ctx) {
			if made, err := s.getBackend(ctx); err == nil {
				s.waitRerouted(ctx, made)
				continue
			}
			select {
			case <-ctx.Done():
			case <-time.After(prepareInterval):
			}
		}
	})
}

// waitPlaced returns once the resource has a Store, or false if ctx is done before.
func (s *lazyStorage) waitPlaced(ctx context.Context) bool {
	for ctx.Err() == nil {
		changed := s.route.changed()
		if _, err := s.route.find(); err == nil {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return false
}

// waitRerouted returns when the backend is no longer the one to use.
func (s *lazyStorage) waitRerouted(ctx context.Context, made *backend) {
	for ctx.Err() == nil {
		changed := s.route.changed()
		if !s.isCurrent(made) {
			return
		}
		select {
		case <-changed:
		case <-made.store.Done():
		case <-ctx.Done():
		}
	}
}

// isCurrent reports whether a backend is where the route leads now. A HostedResource
// that was made again may name another Store: what is in this one is not found there.
func (s *lazyStorage) isCurrent(made *backend) bool {
	at, err := s.route.find()
	return err == nil && made.location == at && !made.isStale()
}

// getBackend returns the backend. The first caller makes it.
func (s *lazyStorage) getBackend(ctx context.Context) (*backend, error) {
	if made := s.backend.Load(); made != nil && s.isCurrent(made) {
		return made, nil
	}
	at, err := s.find(ctx)
	if err != nil {
		return nil, err
	}
	store, err := s.store(at.store)
	if err != nil {
		return nil, storeUnavailable(at.store, err)
	}
	select {
	case s.building <- struct{}{}:
		defer func() { <-s.building }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	before := s.backend.Load()
	if before != nil && s.isCurrent(before) {
		return before, nil
	}
	if s.destroyed {
		return nil, errDestroyed
	}
	if down := store.Available(); down != nil {
		return nil, storeUnavailable(at.store, down)
	}
	made, err := s.config.build(ctx, store)
	if err != nil {
		return nil, err
	}
	made.location = at
	s.backend.Store(made)
	if before != nil {
		before.destroy()
	}
	return made, nil
}

// find returns the Store of the resource and waits for one to be chosen, but not for
// long.
func (s *lazyStorage) find(ctx context.Context) (location, error) {
	var giveUp <-chan time.Time
	for {
		changed := s.route.changed()
		at, err := s.route.find()
		var missing *notPlacedError
		switch {
		case err == nil:
			return at, nil
		case !errors.As(err, &missing):
			return location{}, err
		case missing.final:
			return location{}, missing.status()
		case giveUp == nil:
			timer := time.NewTimer(placementTimeout)
			defer timer.Stop()
			giveUp = timer.C
		}
		select {
		case <-changed:
		case <-giveUp:
			return location{}, missing.status()
		case <-ctx.Done():
			return location{}, missing.status()
		}
	}
}

// destroy closes the backend, if there is one, and keeps another from being made.
func (s *lazyStorage) destroy() {
	s.stopPreparing()
	s.preparing.Wait()
	s.building <- struct{}{}
	defer func() { <-s.building }()
	s.destroyed = true
	if made := s.backend.Load(); made != nil {
		made.destroy()
	}
}

// do calls the backend for what etcd has to answer. If that is known to be down it
// is not asked.
func (s *lazyStorage) do(ctx context.Context, call func(storage.Interface) error) error {
	b, err := s.getBackend(ctx)
	if err != nil {
		return err
	}
	if down := b.store.Available(); down != nil {
		return storeUnavailable(b.store.Name(), down)
	}
	return call(b.Interface)
}

// read calls the backend for what the watch cache can answer while etcd is down.
func (s *lazyStorage) read(ctx context.Context, call func(storage.Interface) error) error {
	b, err := s.getBackend(ctx)
	if err != nil {
		return err
	}
	if down := b.store.Available(); down != nil && !b.canServeReads() {
		return storeUnavailable(b.store.Name(), down)
	}
	return call(b.Interface)
}

// Versioner implements storage.Interface.
func (s *lazyStorage) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

// Create implements storage.Interface.
func (s *lazyStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	return s.do(ctx, func(b storage.Interface) error { return b.Create(ctx, key, obj, out, ttl) })
}

// Delete implements storage.Interface.
func (s *lazyStorage) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, options storage.DeleteOptions,
) error {
	return s.do(ctx, func(b storage.Interface) error {
		return b.Delete(ctx, key, out, preconditions, validate, cached, options)
	})
}

// GuaranteedUpdate implements storage.Interface.
func (s *lazyStorage) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	ctx, update = exemptFromLimits(compression.ForUpdate(ctx), update)
	return s.do(ctx, func(b storage.Interface) error {
		return b.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, update, cached)
	})
}

// Get implements storage.Interface.
func (s *lazyStorage) Get(ctx context.Context, key string, options storage.GetOptions, out runtime.Object) error {
	call := func(b storage.Interface) error { return b.Get(ctx, key, options, out) }
	if options.ResourceVersion == "" {
		return s.do(ctx, call)
	}
	return s.read(ctx, call)
}

// GetList implements storage.Interface.
func (s *lazyStorage) GetList(ctx context.Context, key string, options storage.ListOptions, list runtime.Object) error {
	if s.isEmpty(ctx) {
		return nil
	}
	call := func(b storage.Interface) error { return b.GetList(ctx, key, options, list) }
	if options.ResourceVersion == "" {
		return s.do(ctx, call)
	}
	return s.read(ctx, call)
}

// isEmpty answers for who deletes the objects of a definition, one that was never
// placed: there are none, and the definition must not wait for a Store to be chosen.
// Requests of clients are refused instead, there is no resource version to give.
func (s *lazyStorage) isEmpty(ctx context.Context) bool {
	if _, ofClient := request.RequestInfoFrom(ctx); ofClient || s.backend.Load() != nil {
		return false
	}
	to, ok := s.route.(*hostedRoute)
	if !ok {
		_, none := s.route.(shadowed)
		return none
	}
	_, err := to.find()
	var missing *notPlacedError
	return errors.As(err, &missing) && to.neverPlaced(ctx)
}

// Watch implements storage.Interface.
func (s *lazyStorage) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	var watcher watch.Interface
	err := s.read(ctx, func(b storage.Interface) error {
		var err error
		watcher, err = b.Watch(ctx, key, options)
		return err
	})
	return watcher, err
}

// Stats implements storage.Interface. It is asked for now and then in the
// background, and waits for nothing.
func (s *lazyStorage) Stats(ctx context.Context) (storage.Stats, error) {
	b := s.backend.Load()
	if b == nil {
		return storage.Stats{}, storage.ErrStorageNotReady
	}
	if down := b.store.Available(); down != nil {
		return storage.Stats{}, fmt.Errorf("count what store %q holds: %w", b.store.Name(), down)
	}
	return b.Stats(ctx)
}

// ReadinessCheck implements storage.Interface. Only what is pinned is waited for:
// annex is ready without the others.
func (s *lazyStorage) ReadinessCheck() error {
	b := s.backend.Load()
	if b == nil {
		return nil
	}
	if _, always := s.route.(pinned); !always {
		return nil
	}
	return b.ReadinessCheck()
}

// RequestWatchProgress implements storage.Interface.
func (s *lazyStorage) RequestWatchProgress(ctx context.Context) error {
	return s.do(ctx, func(b storage.Interface) error { return b.RequestWatchProgress(ctx) })
}

// GetCurrentResourceVersion implements storage.Interface.
func (s *lazyStorage) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	var version uint64
	err := s.do(ctx, func(b storage.Interface) error {
		var err error
		version, err = b.GetCurrentResourceVersion(ctx)
		return err
	})
	return version, err
}

// EnableResourceSizeEstimation implements storage.Interface.
func (s *lazyStorage) EnableResourceSizeEstimation(keys storage.KeysFunc) error {
	b := s.backend.Load()
	if b == nil {
		return storage.ErrStorageNotReady
	}
	return b.EnableResourceSizeEstimation(keys)
}

// CompactRevision implements storage.Interface.
func (s *lazyStorage) CompactRevision() int64 {
	b := s.backend.Load()
	if b == nil {
		return 0
	}
	return b.CompactRevision()
}
