// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatainformers

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// A resource that cannot be read yet frees its slot after slotPeriod.
const slotPeriod = 5 * time.Second

// backoff is the delay after failures to list or watch. It starts low, because upstream
// rejects the first request for a custom resource while it creates a cache.
var backoff = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 12, Cap: 5 * time.Second}

// The delay starts over once requests have succeeded for backoffReset.
const backoffReset = time.Minute

// phase describes which objects of a resource are known.
type phase int

const (
	// waiting: the resource is not read yet, because it may be without objects, or others are read.
	waiting phase = iota
	// empty: the resource has no objects, and is not watched.
	empty
	// listing: its objects are being read.
	listing
	// streaming: the same, with a watch that first sends them.
	streaming
	// listed: its objects are known, but not what has changed since.
	listed
	// current: its objects are known, and a watch is open.
	current
)

// follower watches one resource.
type follower struct {
	served
	objects *store
	// notFound is called when the server does not serve the resource.
	notFound func()
	// stored returns how many objects etcd has of the resource; nil if unknown.
	// storedChanged signals a change.
	stored        func() (objects int64, known bool)
	storedChanged chan struct{}

	cancel context.CancelFunc
	done   chan struct{}
	// unwanted is the time at which the resource ceased to be served, zero while it is.
	unwanted time.Time

	mu    sync.Mutex
	phase phase
	// synced is set once handlers received all objects.
	synced bool
	// started is the time at which reading began, zero while the follower waits for a slot.
	started time.Time
	// failure is the last error of reading. It is reported once.
	failure  error
	reported bool
	// free frees the slot.
	free func()
}

func newFollower(item served, handlers []Handler) *follower {
	f := &follower{served: item, done: make(chan struct{}), storedChanged: make(chan struct{}, 1), started: time.Now(), free: func() {}}
	f.objects = newStore(item.Resource, handlers, f.replaced)
	return f
}

// run watches the resource until ctx is done. slots bounds the number of concurrent first
// reads.
func (f *follower) run(ctx context.Context, annexMetadata metadata.Interface, slots chan struct{}) {
	defer close(f.done)
	if !f.waitForObjects(ctx) {
		return
	}
	select {
	case <-ctx.Done():
		return
	case slots <- struct{}{}:
	}
	free := sync.OnceFunc(func() { <-slots })
	defer free()
	defer time.AfterFunc(slotPeriod, free).Stop()
	f.mu.Lock()
	f.free, f.started = free, time.Now()
	f.mu.Unlock()

	logger := klog.LoggerWithValues(klog.FromContext(ctx), "resource", f.GroupVersionResource)
	objects := annexMetadata.Resource(f.GroupVersionResource)
	quiet := klog.NewContext(ctx, logger.V(4))
	reflector := cache.NewReflectorWithOptions(
		cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				f.set(listing)
				list, err := objects.List(ctx, options)
				if err != nil {
					f.failed(err)
				}
				return list, err
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return f.watch(ctx, objects, options)
			},
		}, annexMetadata),
		&metav1.PartialObjectMetadata{}, f.objects,
		cache.ReflectorOptions{Name: "metadata", TypeDescription: f.String(), Backoff: &backoff, Logger: &logger},
	)
	// It fails only when ctx is done.
	_ = backoff.DelayWithReset(clock.RealClock{}, backoffReset).Until(quiet, true, true, func(ctx context.Context) (bool, error) {
		if err := reflector.ListAndWatchWithContext(ctx); err != nil && ctx.Err() == nil {
			f.logFailure(logger, err)
		}
		return false, nil
	})
}

// logFailure logs that the resource cannot be read, as an error once that has lasted.
func (f *follower) logFailure(logger klog.Logger, err error) {
	f.mu.Lock()
	loud := !f.reported && time.Since(f.started) > settlePeriod
	f.reported = f.reported || loud
	f.mu.Unlock()
	if loud {
		logger.Error(err, "A resource cannot be read, trying again; what depends on knowing its objects waits")
	} else {
		logger.V(2).Info("A resource cannot be read, trying again", "err", err)
	}
}

// waitForObjects returns true when the resource has objects, and false when ctx is done.
// Watching a custom resource makes the server create a cache for it, which is not worth
// it without objects.
func (f *follower) waitForObjects(ctx context.Context) bool {
	for f.stored != nil {
		objects, known := f.stored()
		if known && objects > 0 {
			break
		}
		if known {
			f.complete(empty)
		} else {
			f.set(waiting)
		}
		select {
		case <-ctx.Done():
			return false
		case <-f.storedChanged:
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.phase, f.started = waiting, time.Time{}
	return true
}

// storedObjectsChanged makes waitForObjects count the objects again.
func (f *follower) storedObjectsChanged() {
	select {
	case f.storedChanged <- struct{}{}:
	default: // it is about to
	}
}

func (f *follower) watch(ctx context.Context, objects metadata.Getter, options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil {
		f.set(listing)
	}
	events, err := objects.Watch(ctx, options)
	if err != nil {
		f.failed(err)
		return nil, err
	}
	f.opened()
	return &watched{Interface: events, stopped: f.closed}, nil
}

// opened is called when a watch was opened, and closed when it ended.
func (f *follower) opened() { f.change(map[phase]phase{listing: streaming, listed: current}) }
func (f *follower) closed() { f.change(map[phase]phase{streaming: listing, current: listed}) }

// watched is a watch that reports its end.
type watched struct {
	watch.Interface
	stopped func()
}

// Stop implements watch.Interface.
func (w *watched) Stop() {
	w.stopped()
	w.Interface.Stop()
}

// stop ends the watch. The server may have ended it before it sent the last deletions of a resource
// whose definition is gone: if nothing is stored, its objects were deleted. Otherwise their dependents
// would never be collected.
func (f *follower) stop() {
	f.cancel()
	<-f.done
	if f.unwanted.IsZero() || f.stored == nil {
		return
	}
	if objects, known := f.stored(); known && objects == 0 {
		f.objects.empty()
	}
}

func (f *follower) set(phase phase) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.phase = phase
}

// change replaces a phase, if it is one of these.
func (f *follower) change(phases map[phase]phase) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if after, found := phases[f.phase]; found {
		f.phase = after
	}
}

// replaced is called once handlers have received all objects.
func (f *follower) replaced() {
	f.mu.Lock()
	after := listed
	if f.phase == streaming {
		after = current
	}
	free := f.free
	f.mu.Unlock()
	free()
	f.complete(after)
}

// complete begins a phase in which all objects are known.
func (f *follower) complete(phase phase) {
	f.mu.Lock()
	first := !f.synced
	f.phase, f.synced, f.failure, f.reported = phase, true, nil, false
	f.mu.Unlock()
	if first {
		f.objects.notifySynced()
	}
}

// failed records why the resource could not be read.
func (f *follower) failed(err error) {
	f.mu.Lock()
	f.failure = err
	free := f.free
	f.mu.Unlock()
	// The first rejections while a cache is created are expected.
	if !apierrors.IsTooManyRequests(err) {
		free()
	}
	if apierrors.IsNotFound(err) {
		f.notFound()
	}
}

// State describes which objects of a resource are known.
type State struct {
	Resource
	// Synced means that handlers received all its objects once.
	Synced bool
	// Current means that, in addition, they receive its changes.
	Current bool
	// Err is the last error of reading, while it is not current.
	Err error
}

func (f *follower) state() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	state := State{Resource: f.Resource, Synced: f.synced, Current: f.phase == current}
	if f.phase == empty {
		objects, known := f.stored()
		state.Current = known && objects == 0
	}
	if !state.Current {
		state.Err = f.failure
	}
	return state
}

// settled reports whether waiting for the resource has no benefit.
func (f *follower) settled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.synced || !f.started.IsZero() && time.Since(f.started) > settlePeriod
}
