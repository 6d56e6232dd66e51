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

	"github.com/annex-dev/annex/pkg/storage/usage"
)

// Store is the connection to the etcd cluster of one Store.
type Store struct {
	name    string
	prefix  string
	pool    *Pool
	client  *kubernetes.Client
	usage   *usage.Tracker
	metrics *storeMetrics
	// embedded is set for the etcd inside the process, which cannot be away, only
	// slow.
	embedded bool

	breaker atomic.Pointer[breaker]
	// highest is the highest revision of the etcd that was seen, and known how far its
	// history is.
	highest  atomic.Int64
	known    atomic.Pointer[History]
	snapshot atomic.Pointer[Snapshot]
	compact  compaction
	wake     chan struct{}
	// probed is closed when the Store was looked at for the first time.
	probed     chan struct{}
	probedOnce sync.Once

	// What the loop goes by; it is the Store as its API object is.
	mu      sync.Mutex
	desired desiredState

	// done is closed when the Set has no such Store any longer, or another.
	done chan struct{}

	// stop ends what runs for the Store, and running is that.
	stop    context.CancelFunc
	running sync.WaitGroup
	// state is only the loop's.
	state probeState
}

// desiredState is what the API object of a Store says.
type desiredState struct {
	uid        types.UID
	generation int64
	target     target
	secret     *secretRef
	// defragments says that annex makes room in the etcd when it is full.
	defragments bool
	// pinned is the ID of the cluster that the Store was first reached at, 0 while
	// that is not written down, and known is what was written down of its history.
	pinned uint64
	known  History
}

// Name is the name of the Store.
func (s *Store) Name() string { return s.name }

// Prefix is what all keys of annex in the Store begin with.
func (s *Store) Prefix() string { return s.prefix }

// Client is the client of the Store's etcd that all share. It has KV, Watcher and
// Lease, and stays the same when endpoints or credentials change. Whoever wraps one
// of these makes a client of his own with the others.
func (s *Store) Client() *kubernetes.Client { return s.client }

// Compactor tells up to which revision the history of the Store was removed. It is
// nil where annex does not remove it.
func (s *Store) Compactor() etcd3.Compactor {
	if s.pool.config.CompactionInterval == 0 {
		return nil
	}
	return &s.compact
}

// Usage knows how much each resource has in the Store.
func (s *Store) Usage() *usage.Tracker { return s.usage }

// Available returns nil unless requests are known to fail, and else an
// *UnavailableError that says why. A Store that is out of space is available: it is
// read. So is one that annex has only just heard of: requests wait for the first look
// at it.
func (s *Store) Available() error {
	if refused := s.breaker.Load().unavailable; refused != nil && refused.Reason != ReasonConnecting {
		return refused
	}
	return nil
}

// Data tells the data that requests pass to from others: the UID of the Store and the
// epoch of its mark. Both are empty while that is not known.
func (s *Store) Data() (uid types.UID, epoch string) {
	seen := s.Snapshot()
	if seen.Mark == nil || seen.Unavailable != nil {
		return "", ""
	}
	return seen.Mark.UID, seen.Mark.Epoch
}

// Done is closed at the end of this Store: it was deleted, or its data were replaced
// and there is another of its name, which has to be asked for. What was read through
// this one is then of the past.
func (s *Store) Done() <-chan struct{} { return s.done }

// firstProbeTimeout bounds how long requests wait for it.
const firstProbeTimeout = 3 * time.Second

// current is the gate, once the Store was looked at.
func (s *Store) current(ctx context.Context) *breaker {
	if g := s.breaker.Load(); g.unavailable == nil || g.unavailable.Reason != ReasonConnecting {
		return g
	}
	timeout := time.NewTimer(firstProbeTimeout)
	defer timeout.Stop()
	select {
	case <-s.probed:
	case <-timeout.C:
	case <-ctx.Done():
	}
	return s.breaker.Load()
}

// Snapshot is what the last look at the Store's etcd found. It must not be changed.
func (s *Store) Snapshot() *Snapshot { return s.snapshot.Load() }

// probeSoon has the Store looked at without waiting for the next turn.
func (s *Store) probeSoon() {
	select {
	case s.wake <- struct{}{}:
	default: // it is asked for already
	}
}

func (s *Store) unavailable(reason, message string) *UnavailableError {
	return &UnavailableError{Store: s.name, Reason: reason, Message: message}
}

// setDesired has the Store be as its API object is.
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
	sameSecret := w.secret == other.secret || w.secret != nil && other.secret != nil && *w.secret == *other.secret
	return w.uid == other.uid && w.generation == other.generation && w.pinned == other.pinned && w.known.Epoch == other.known.Epoch && w.defragments == other.defragments && sameSecret && w.target.equal(other.target)
}

const (
	// probeInterval is how often an etcd is looked at that nobody complains of.
	probeInterval = 5 * time.Second
	// failedProbeInterval is how often one is that does not serve.
	failedProbeInterval = time.Second
	// minProbeInterval keeps looks that are asked for apart.
	minProbeInterval = 100 * time.Millisecond
)

// start has the Store looked at until it is stopped.
func (s *Store) start(ctx context.Context) {
	ctx, s.stop = context.WithCancel(klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "store", s.name)))
	s.running.Go(func() { s.run(ctx) })
	s.running.Go(func() { s.usage.Run(ctx) })
}

func (s *Store) run(ctx context.Context) {
	defer s.compact.stop()
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

// pause returns after d, when asked to, or when ctx is done.
func pause(ctx context.Context, d time.Duration, asked <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-asked:
	}
}

// close refuses all further requests with the reason and frees what the Store has.
func (s *Store) close(refused *UnavailableError) {
	s.stop()
	s.running.Wait()
	s.setBreaker(newBreaker(refused, nil, 0, nil))
	if _, err := s.pool.Get(s.name); err != nil { // there is no other of this name
		s.metrics.forget()
	}
}
