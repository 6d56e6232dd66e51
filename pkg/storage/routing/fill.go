// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"

	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
	"github.com/annex-dev/annex/pkg/storage/layer/corruption"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

const (
	// fillsAtOnce bounds the large resources whose caches are filled at the same time: after a
	// restart clients read all of them.
	fillsAtOnce = 4
	// catchUpPause is the time between requests for etcd's revision that fail.
	catchUpPause = 100 * time.Millisecond
	// fillTimeout ends the turn of a cache that cannot be filled, so that others are.
	fillTimeout = time.Minute
)

// fills is a semaphore of the caches that are being filled.
type fills chan struct{}

// acquire waits for a turn, and returns what ends it.
func (f fills) acquire(ctx context.Context) (release func(), err error) {
	select {
	case f <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	end := sync.OnceFunc(func() { <-f })
	timeout := time.AfterFunc(fillTimeout, end)
	return func() {
		timeout.Stop()
		end()
	}, nil
}

// filling is etcd as a watch cache reads it.
type filling struct {
	storage.Interface
	resource schema.GroupResource
	detector *corruption.Detector
	// attempt is the last one to fill the cache, which makes one after the other. failed has a value after
	// one has failed.
	attempt atomic.Pointer[attempt]
	failed  chan struct{}
	// current is closed when the cache is current.
	current chan struct{}
	// since has the revisions from which the cache is to have history. It is used once.
	since atomic.Pointer[[]uint64]
	// turn waits until the cache may be filled, at the first call. filled ends the turn.
	turn   func() error
	filled func()
	// hasEnded reports whether the cache will not be filled any more.
	hasEnded func() bool
	// lifetime ends with end.
	lifetime context.Context
	end      context.CancelFunc
}

// newFilling returns etcd for the watch cache of a lazyCache. The cache of a pinned resource has no history, with
// which it would take longer until annex is ready.
func (c storageConfig) newFilling(etcd storage.Interface, detector *corruption.Detector, since []uint64, lazy *lazyCache, dropped <-chan struct{}) *filling {
	f := &filling{
		Interface: etcd, resource: c.GroupResource, detector: detector, failed: make(chan struct{}, 1), current: make(chan struct{}), filled: func() {},
		hasEnded: func() bool { return isClosed(dropped) || isClosed(lazy.config.closed) },
	}
	f.lifetime, f.end = context.WithCancel(context.Background())
	f.turn = sync.OnceValue(func() (err error) {
		if !c.eager && !lazy.isSmall() {
			f.filled, err = c.fills.acquire(f.lifetime)
		}
		return err
	})
	if !c.eager {
		f.since.Store(&since)
	}
	f.attempt.Store(newAttempt())
	return f
}

// follow ends the turn of a watch cache when it is filled, each time, and reports when it is current.
func (f *filling) follow(c storageConfig, watchCache *cacher.Cacher, etcd storage.Interface) (following *sync.WaitGroup) {
	following = &sync.WaitGroup{}
	endTurn := func() {
		if f.turn() == nil {
			f.filled()
		}
	}
	following.Go(func() {
		defer endTurn()
		defer f.end()
		for watchCache.Wait(context.Background()) == nil { // or stopped
			// Compiled-in resources have one cache, and it would take longer until annex is ready.
			if !isClosed(f.current) && (c.eager || c.waitCurrent(f.lifetime, watchCache, etcd)) {
				close(f.current)
			}
			if isClosed(f.current) {
				f.detector.NoteAllRead()
			}
			endTurn()
			select {
			case <-f.failed: // it is being filled again
			case <-f.lifetime.Done():
				return
			}
		}
	})
	return following
}

// waitCurrent waits until a watch cache that has been filled is as new as etcd. It begins with history, and
// etcd and the caches of the other versions answer newer reads meanwhile. The first round catches up with the
// history. After the second the cache lags by no more than the delivery of an event, as every cache does.
func (c storageConfig) waitCurrent(ctx context.Context, watchCache *cacher.Cacher, etcd storage.Interface) (current bool) {
	for range 2 {
		if !c.catchUp(ctx, watchCache, etcd) {
			return false
		}
	}
	return true
}

// catchUp waits until a watch cache has what etcd has now.
func (c storageConfig) catchUp(ctx context.Context, watchCache *cacher.Cacher, etcd storage.Interface) (current bool) {
	var now uint64
	err := wait.PollUntilContextCancel(ctx, catchUpPause, true, func(ctx context.Context) (_ bool, err error) {
		now, err = etcd.GetCurrentResourceVersion(ctx)
		return err == nil, nil
	})
	options := storage.GetOptions{ResourceVersion: strconv.FormatUint(now, 10), IgnoreNotFound: true}
	for err == nil && ctx.Err() == nil {
		// It waits for some seconds. Any key will do.
		if !storage.IsTooLargeResourceVersion(watchCache.Get(ctx, c.resourcePrefix+"/-", options, c.newFunc())) {
			return true
		}
	}
	return false
}

// attempt is an attempt to fill a watch cache. failed is closed when it has failed, with err for clients.
type attempt struct {
	once   sync.Once
	failed chan struct{}
	err    error
}

func newAttempt() *attempt { return &attempt{failed: make(chan struct{})} }

// begin begins an attempt, if the last one has failed.
func (f *filling) begin() {
	if isClosed(f.attempt.Load().failed) {
		f.attempt.Store(newAttempt())
	}
}

// failLate ends an attempt when the cache cannot catch up with the history: upstream's reflector opens such a watch
// again and again. After an error that names objects it reads all, and so it does in an attempt that has not read
// all yet. A cache that is current is read while it does so.
func (f *filling) failLate(err error) {
	if !isClosed(f.current) && !apierrors.IsStoreReadError(err) {
		_ = f.fail(err)
	}
}

// watched reports the errors of watches.
type watched struct {
	storage.Interface
	failed func(error)
}

// Watch implements storage.Interface.
func (w watched) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	events, err := w.Interface.Watch(ctx, key, options)
	if err != nil {
		return nil, err
	}
	return watchcache.Forward(events, func(event watch.Event) (watch.Event, bool) {
		if event.Type == watch.Error {
			w.failed(apierrors.FromObject(event.Object))
		}
		return event, true
	}), nil
}

// fail ends an attempt, unless err is nil. That the history was compacted is not reported: the cache reads
// at a later revision.
func (f *filling) fail(err error) error {
	if err == nil || apierrors.IsResourceExpired(err) || f.hasEnded() {
		return err
	}
	last := f.attempt.Load()
	last.once.Do(func() { // a watch may still end while the cache lists
		last.err = err
		if !apierrors.IsStoreReadError(err) { // which names the objects
			f.detector.NoteFailure(err)
			last.err = apierrors.NewTooManyRequests(fmt.Sprintf("%s cannot be read: %v", f.resource, err), retryAfterSeconds)
		}
		close(last.failed)
	})
	select {
	case f.failed <- struct{}{}:
	default:
	}
	return err
}

// Watch implements storage.Interface.
func (f *filling) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	f.begin()
	if options.SendInitialEvents == nil || !*options.SendInitialEvents {
		events, err := f.Interface.Watch(ctx, key, options)
		if err != nil {
			f.failLate(err)
		}
		return events, err
	}
	if err := f.turn(); err != nil {
		return nil, f.fail(err)
	}
	if since := f.since.Swap(nil); since != nil {
		ctx = context.WithValue(ctx, sinceKey{}, *since)
	}
	events, err := f.Interface.Watch(ctx, key, options)
	return events, f.fail(err)
}

// GetList implements storage.Interface. Upstream's reflector lists if it does not support initial
// events.
func (f *filling) GetList(ctx context.Context, key string, options storage.ListOptions, list runtime.Object) error {
	if options.ResourceVersion != "" || options.Predicate.Continue != "" {
		return f.fail(f.Interface.GetList(ctx, key, options, list))
	}
	f.begin()
	if err := f.turn(); err != nil {
		return f.fail(err)
	}
	if since := f.since.Swap(nil); since != nil {
		exact := options
		exact.ResourceVersionMatch = metav1.ResourceVersionMatchExact
		for _, revision := range *since {
			exact.ResourceVersion = strconv.FormatUint(revision, 10)
			if f.Interface.GetList(ctx, key, exact, list) == nil {
				return nil
			}
		}
	}
	return f.fail(f.Interface.GetList(ctx, key, options, list))
}

// sinceKey is the key of revisions in a context.
type sinceKey struct{}

// sinceKV is a KV that reads at the first of the revisions of a context that etcd has, and answers
// as etcd did at that revision. So a watch that first reads all objects continues from there.
type sinceKV struct{ clientv3.KV }

// Get implements clientv3.KV.
func (kv sinceKV) Get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	for _, revision := range sinceOf(ctx, key, options) {
		found, err := kv.KV.Get(ctx, key, at(revision, options)...)
		if err == nil {
			found.Header.Revision = int64(revision)
			return found, nil
		}
	}
	return kv.KV.Get(ctx, key, options...)
}

// GetStream implements clientv3.KV.
func (kv sinceKV) GetStream(ctx context.Context, key string, options ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	for _, revision := range sinceOf(ctx, key, options) {
		// Whether etcd has the revision: a stream has the error in its first part.
		if _, err := kv.KV.Get(ctx, key, at(revision, slices.Concat(options, []clientv3.OpOption{clientv3.WithLimit(1)}))...); err != nil {
			continue
		}
		stream, err := kv.KV.GetStream(ctx, key, at(revision, options)...)
		if err != nil {
			continue
		}
		return etcdkv.Forward(ctx, stream, func(part *clientv3.RangeStreamResponse) error {
			if part.GetHeader() != nil {
				part.Header.Revision = int64(revision)
			}
			return nil
		}, nil), nil
	}
	return kv.KV.GetStream(ctx, key, options...)
}

// sinceOf returns the revisions of a context, for a read without a revision: others continue such
// reads.
func sinceOf(ctx context.Context, key string, options []clientv3.OpOption) []uint64 {
	since, _ := ctx.Value(sinceKey{}).([]uint64)
	if len(since) == 0 || clientv3.OpGet(key, options...).Rev() != 0 {
		return nil
	}
	return since
}

func at(revision uint64, options []clientv3.OpOption) []clientv3.OpOption {
	return slices.Concat(options, []clientv3.OpOption{clientv3.WithRev(int64(revision))})
}
