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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3/metrics"

	"github.com/annex-dev/annex/pkg/storage/layer/freeze"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

const (
	// placementTimeout bounds the wait of a request for the scheduler, which takes
	// milliseconds if a Store fits.
	placementTimeout = 2 * time.Second
	// prepareTimeout bounds the creation of the storage of annex's own kinds.
	prepareTimeout = time.Minute
	// attemptTimeout bounds one attempt. A request that etcd does not answer is sent again.
	attemptTimeout = 10 * time.Second
	// prepareInterval is the time between attempts to create storage.
	prepareInterval = time.Second
)

var errDestroyed = errors.New("the storage has been closed")

// lazyStorage is the storage of a resource.
type lazyStorage struct {
	*lazyBackend
	// kept is set if reads return objects as the watch cache keeps them.
	kept bool
}

var _ storage.Interface = &lazyStorage{}

// Packed returns storage that reads the Packed objects of a resource for which Config.Packed is true.
func Packed(of storage.Interface) (storage.Interface, error) {
	lazy, ok := of.(*lazyStorage)
	if !ok || !lazy.config.packed {
		return nil, fmt.Errorf("read packed objects from a %T: it has none", of)
	}
	return &lazyStorage{lazy.lazyBackend, true}, nil
}

// lazyBackend builds a backend in the Store of a resource when it is first used, and another when the
// resource or the data of the Store are replaced.
type lazyBackend struct {
	route  route
	store  func(name string) (Store, error)
	config storageConfig

	// building is the lock for creating and destroying the backend. Unlike a mutex it can be
	// waited for with a context.
	building  chan struct{}
	backend   atomic.Pointer[backend]
	destroyed bool

	// following are the goroutines of follow and count, and stop ends them.
	following sync.WaitGroup
	lifetime  context.Context
	stop      context.CancelFunc
}

func newLazyStorage(to route, store func(string) (Store, error), config storageConfig) *lazyStorage {
	s := &lazyBackend{route: to, store: store, config: config, building: make(chan struct{}, 1)}
	s.lifetime, s.stop = context.WithCancel(context.Background())
	return &lazyStorage{lazyBackend: s}
}

// prepare builds the backend before it is used. It retries until prepareTimeout: an etcd that
// has just started on a busy disk may time out, and upstream panics without storage.
func (s *lazyBackend) prepare() error {
	var last error
	_ = wait.PollUntilContextTimeout(context.Background(), prepareInterval, prepareTimeout, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		_, last = s.getBackend(ctx)
		return last == nil, nil
	})
	return last
}

// follow builds a new backend when the resource or the data of the Store of a backend are
// replaced, which ends the watches of the old one.
func (s *lazyBackend) follow(made *backend) {
	ctx := s.lifetime
	s.waitRerouted(ctx, made)
	for s.waitPlaced(ctx) {
		changed := s.route.changed()
		next, err := s.getBackend(ctx)
		if err == nil {
			made = next
			s.waitRerouted(ctx, made)
			continue
		}
		if freeze.IsReturned(err) {
			made.destroy() // its watch cache would try to list until the definition is deleted
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-time.After(prepareInterval):
		}
	}
}

// waitPlaced returns once the resource has a Store, or false if ctx is done before.
func (s *lazyBackend) waitPlaced(ctx context.Context) bool {
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

// waitRerouted returns when the backend is no longer current.
func (s *lazyBackend) waitRerouted(ctx context.Context, made *backend) {
	for ctx.Err() == nil {
		changed := s.route.changed()
		if !s.isCurrent(made) {
			return
		}
		select {
		case <-changed:
		case <-made.changed:
		case <-made.store.Done():
		case <-ctx.Done():
		}
	}
}

// isCurrent reports whether the route leads to a backend. A HostedResource that was created
// again may name another Store, which does not have the objects of this one.
func (s *lazyBackend) isCurrent(made *backend) bool {
	at, err := s.route.find()
	return err == nil && made.location == at && !made.isStale()
}

// getBackend returns the current backend. The first caller builds it.
func (s *lazyBackend) getBackend(ctx context.Context) (*backend, error) {
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
	made, err := s.config.build(ctx, store, at)
	if err != nil {
		return nil, err
	}
	s.backend.Store(made)
	if before != nil {
		before.destroy()
	} else if !s.config.eager {
		s.following.Go(func() { s.follow(made) })
		if s.config.CountMetricPollPeriod > 0 {
			s.following.Go(s.count)
		}
	}
	return made, nil
}

// find returns the location of the resource. It waits for placementTimeout until there is one.
func (s *lazyBackend) find(ctx context.Context) (location, error) {
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

// destroy closes the backend and prevents the creation of another.
func (s *lazyBackend) destroy() {
	s.stop()
	defer s.following.Wait()
	s.building <- struct{}{}
	defer func() { <-s.building }()
	s.destroyed = true
	if made := s.backend.Load(); made != nil {
		made.destroy()
	}
}

// do calls the backend, unless the Store is unavailable. The watch cache can serve a read without etcd.
func (s *lazyBackend) do(ctx context.Context, fromCache bool, call func(*backend) error) error {
	return s.hold(ctx, func() error {
		b, err := s.getBackend(ctx)
		if err != nil {
			return err
		}
		if down := b.store.Available(); down != nil && (!fromCache || !b.canServeReads()) {
			return storeUnavailable(b.store.Name(), down)
		}
		return call(b)
	})
}

// reads returns what reads the objects of a backend.
func (s *lazyStorage) reads(b *backend) storage.Interface {
	if s.kept {
		return b.kept
	}
	return b
}

// writes returns what creates, updates and deletes objects in the form that reads returns.
func (s *lazyStorage) writes(b *backend) storage.Interface {
	if s.kept {
		return b.writes
	}
	return b
}

// Versioner implements storage.Interface.
func (s *lazyStorage) Versioner() storage.Versioner { return versioner }

// Create implements storage.Interface.
func (s *lazyStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	return s.do(ctx, false, func(b *backend) error { return s.writes(b).Create(ctx, key, obj, out, ttl) })
}

// Delete implements storage.Interface.
func (s *lazyStorage) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, options storage.DeleteOptions,
) error {
	return s.do(ctx, false, func(b *backend) error {
		return s.writes(b).Delete(ctx, key, out, preconditions, validate, cached, options)
	})
}

// GuaranteedUpdate implements storage.Interface.
func (s *lazyStorage) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	return s.do(ctx, false, func(b *backend) error {
		return s.writes(b).GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, update, cached)
	})
}

// Get implements storage.Interface.
func (s *lazyStorage) Get(ctx context.Context, key string, options storage.GetOptions, out runtime.Object) error {
	return s.do(ctx, options.ResourceVersion != "", func(b *backend) error { return s.reads(b).Get(ctx, key, options, out) })
}

// GetList implements storage.Interface.
func (s *lazyStorage) GetList(ctx context.Context, key string, options storage.ListOptions, list runtime.Object) (err error) {
	_, ofClient := request.RequestInfoFrom(ctx)
	if !ofClient && s.isEmpty(ctx) {
		return nil
	}
	ownTokens := s.config.OwnTokens && s.config.definition != nil
	if ownTokens {
		if options, err = withUpstreamToken(options); err != nil {
			return err
		}
	}
	err = s.do(ctx, options.ResourceVersion != "", func(b *backend) error { return s.reads(b).GetList(ctx, key, options, list) })
	if !ofClient && freeze.IsReturned(err) && s.isCleared(ctx) {
		return nil
	}
	if err == nil && ownTokens {
		err = setAnnexToken(list)
	}
	return err
}

// isEmpty reports whether a resource was never placed while its definition is being deleted:
// the finalizer of the definition must not wait for a Store. Requests of clients are refused
// instead, because there is no resource version to return.
func (s *lazyBackend) isEmpty(ctx context.Context) bool {
	if s.backend.Load() != nil {
		return false
	}
	if none, ok := s.route.(refused); ok {
		return none.empty
	}
	to, ok := s.route.(*hostedRoute)
	if !ok {
		return false
	}
	_, err := to.find()
	var missing *notPlacedError
	return errors.As(err, &missing) && to.neverPlaced(ctx)
}

// isCleared reports whether a resource that was returned to the main cluster has no objects left. The finalizer
// of its definition lists them, and must not be refused.
func (s *lazyBackend) isCleared(ctx context.Context) bool {
	at, err := s.route.find()
	if err != nil {
		return false
	}
	store, err := s.store(at.store)
	if err != nil {
		return false
	}
	objects, err := freeze.Target{KV: store.Client().KV, Prefix: store.Prefix(), Resource: s.config.GroupResource}.Objects(ctx)
	return err == nil && objects == 0
}

// Watch implements storage.Interface. From a later revision than etcd has, upstream's would drop all events up to
// that revision. Such a version comes from another server or from an etcd that lost writes, so the client gets
// 410, as for one that is too old.
func (s *lazyStorage) Watch(ctx context.Context, key string, options storage.ListOptions) (events watch.Interface, err error) {
	err = s.do(ctx, true, func(b *backend) error {
		expired, err := b.isFuture(ctx, options)
		if expired != nil {
			events = watchcache.ForwardLater(ctx, func(context.Context) (watch.Interface, error) { return nil, expired })
		} else if err == nil {
			events, err = s.reads(b).Watch(ctx, key, options)
		}
		return err
	})
	return events, err
}

// Stats implements storage.Interface. Upstream calls it periodically, so it does not wait.
func (s *lazyBackend) Stats(ctx context.Context) (storage.Stats, error) {
	b := s.backend.Load()
	if b == nil {
		return storage.Stats{}, storage.ErrStorageNotReady
	}
	if down := b.store.Available(); down != nil {
		return storage.Stats{}, fmt.Errorf("count the objects in store %q: %w", b.store.Name(), down)
	}
	return b.Stats(ctx)
}

// ReadinessCheck implements storage.Interface. Only pinned resources delay /readyz.
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
	return s.do(ctx, false, func(b *backend) error { return b.RequestWatchProgress(ctx) })
}

// GetCurrentResourceVersion implements storage.Interface.
func (s *lazyStorage) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	var version uint64
	err := s.do(ctx, false, func(b *backend) error {
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

// countJitter is upstream's, so that resources are not counted at the same moment.
const countJitter = 1.2

// count updates upstream's metrics of a resource, and the number of objects by which priority and
// fairness estimates the cost of lists. Upstream has a goroutine for that, which only upstream's own
// server ends.
func (s *lazyBackend) count() {
	resource := s.config.GroupResource
	defer metrics.DeleteStoreStats(resource)
	wait.JitterUntilWithContext(s.lifetime, func(ctx context.Context) {
		stats, err := s.Stats(ctx)
		metrics.UpdateStoreStats(resource, stats, err)
		if tracker := s.config.StorageObjectCountTracker; err == nil && tracker != nil {
			tracker.Set(resource.String(), stats)
		}
	}, s.config.CountMetricPollPeriod, countJitter, true)
}
