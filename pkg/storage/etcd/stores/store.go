// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
)

// Store is the connection to the etcd cluster of one Store.
type Store struct {
	name    string
	prefix  string
	pool    *Pool
	client  *kubernetes.Client
	usage   *usage.Tracker
	metrics *storeMetrics
	// embedded is set for the etcd inside the process, which may be slow but not unreachable.
	embedded bool
	// disk is nil for an etcd elsewhere.
	disk *disk

	breaker atomic.Pointer[breaker]
	// highest is the highest revision that etcd has returned, and known the newest point of its
	// history that annex knows.
	highest  atomic.Int64
	known    atomic.Pointer[History]
	snapshot atomic.Pointer[Snapshot]
	compact  compaction
	wake     chan struct{}
	// probed is closed after the first probe.
	probed     chan struct{}
	probedOnce sync.Once

	// adoption is the last adoption. A Store whose status records one is replaced in the Pool.
	adoption atomic.Pointer[Claim]

	// desired is the configuration from the API object.
	mu      sync.Mutex
	desired desiredState

	// done is closed when the Pool has no such Store any longer, or another.
	done chan struct{}

	// stop ends the goroutines of the Store, and running waits for them.
	stop    context.CancelFunc
	running sync.WaitGroup
	// state is used only by the goroutine that probes.
	state probeState
}

// desiredState is the configuration of a Store in its API object.
type desiredState struct {
	uid        types.UID
	generation int64
	target     target
	secret     *secretRef
	// defragments allows annex to compact and defragment a full etcd.
	defragments bool
	// pinned is the ID of the cluster that the Store was claimed in, 0 before that is recorded
	// in the status, and known the recorded history.
	pinned uint64
	known  History
}

// Name returns the name of the Store.
func (s *Store) Name() string { return s.name }

// Prefix begins all keys of annex in the Store.
func (s *Store) Prefix() string { return s.prefix }

// Client returns the client that all users of the Store share. It has KV, Watcher and Lease, and
// stays the same when endpoints or credentials change. A wrapper of one of these needs a client
// of its own with the others.
func (s *Store) Client() *kubernetes.Client { return s.client }

// Compactor returns the revision of the last compaction; it is nil if annex does not compact.
func (s *Store) Compactor() etcd3.Compactor {
	if s.pool.config.CompactionInterval == 0 {
		return nil
	}
	return &s.compact
}

// Usage counts the objects of each resource in the Store.
func (s *Store) Usage() *usage.Tracker { return s.usage }

// Available returns nil unless requests are known to fail, otherwise an *UnavailableError. A
// Store that is out of space is available for reads. So is a new one: requests wait for its
// first probe.
func (s *Store) Available() error {
	if refused := s.breaker.Load().unavailable; refused != nil && refused.Reason != ReasonConnecting {
		return refused
	}
	return nil
}

// Data identifies the data that requests read: the UID of the Store and the epoch of its mark.
// Both are empty while these are unknown.
func (s *Store) Data() (uid types.UID, epoch string) {
	seen := s.Snapshot()
	if seen.Mark == nil || seen.Unavailable != nil {
		return "", ""
	}
	return seen.Mark.UID, seen.Mark.Epoch
}

// Done is closed when the Store was deleted, or its data were replaced and the Pool has another
// Store of the same name. Objects that were read through this one are outdated then.
func (s *Store) Done() <-chan struct{} { return s.done }

// firstProbeTimeout bounds the wait of requests for the first probe.
const firstProbeTimeout = 3 * time.Second

// current returns the breaker after the first probe.
func (s *Store) current(ctx context.Context) *breaker {
	if g := s.breaker.Load(); g.unavailable == nil || g.unavailable.Reason != ReasonConnecting {
		return g
	}
	pause(ctx, firstProbeTimeout, s.probed)
	return s.breaker.Load()
}

// Snapshot returns the result of the last probe. It must not be changed.
func (s *Store) Snapshot() *Snapshot { return s.snapshot.Load() }

// probeSoon probes the Store without waiting for the interval.
func (s *Store) probeSoon() {
	select {
	case s.wake <- struct{}{}:
	default: // already requested
	}
}

func (s *Store) unavailable(reason, message string) *UnavailableError {
	return &UnavailableError{Store: s.name, Reason: reason, Message: message}
}

// setDesired configures the Store as its API object does.
func (s *Store) setDesired(w desiredState) {
	s.mu.Lock()
	changed := !s.desired.equal(w)
	s.desired = w
	s.mu.Unlock()
	if changed {
		s.probeSoon()
	}
}

func (s *Store) desiredState() desiredState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.desired
}

func (w desiredState) equal(other desiredState) bool {
	return w.uid == other.uid && w.generation == other.generation && w.pinned == other.pinned && w.known.Epoch == other.known.Epoch &&
		w.defragments == other.defragments && ptr.Equal(w.secret, other.secret) && w.target.equal(other.target)
}

const (
	// probeInterval is the time between probes of an available etcd.
	probeInterval = 5 * time.Second
	// failedProbeInterval is the time between probes of an unavailable or full one.
	failedProbeInterval = time.Second
	// minProbeInterval is the minimum time between probes.
	minProbeInterval = 100 * time.Millisecond
)

// start probes the Store until it is closed.
func (s *Store) start(ctx context.Context) {
	ctx, s.stop = context.WithCancel(klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "store", s.name)))
	s.running.Go(func() { s.run(ctx) })
	s.running.Go(func() { s.usage.Run(ctx) })
}

func (s *Store) run(ctx context.Context) {
	defer s.compact.set(false, s)
	for ctx.Err() == nil {
		s.probe(ctx)
		interval := probeInterval
		if s.Available() != nil || s.Snapshot().NoSpace {
			interval = failedProbeInterval
		}
		pause(ctx, minProbeInterval, nil)
		pause(ctx, interval, s.wake)
	}
}

// pause returns after d, or earlier if ctx is done or the channel receives.
func pause(ctx context.Context, d time.Duration, early <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	case <-early:
	}
}

// close refuses all further requests with the reason and closes the connection.
func (s *Store) close(refused *UnavailableError) {
	s.stop()
	s.running.Wait()
	s.setBreaker(newBreaker(refused, nil, 0, nil))
	if _, err := s.pool.Get(s.name); err != nil { // it was not replaced
		s.metrics.forget()
	}
}
