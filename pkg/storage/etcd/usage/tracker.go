// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage counts the objects and bytes of each resource in etcd.
//
// A Tracker reads all keys once, in pages at one revision, and then follows them with one
// watch. Each event contains the previous value, so memory is proportional to the number
// of resources and namespaces, not of objects.
//
// The counts are exact as of a revision. If the watch loses events or previous values to a
// compaction, all keys are read again; the last counts stay visible meanwhile.
package usage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/observers"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
)

// After progressDelay WaitFor requests the progress of the watch: etcd sends events below the prefix
// at once, but reports no writes elsewhere.
const progressDelay = 100 * time.Millisecond

// Usage counts the objects of a resource in etcd.
type Usage struct {
	// Objects is the number of objects.
	Objects int64
	// Bytes is the size of their values in etcd, compressed and encrypted, without keys
	// and old revisions.
	Bytes int64
	// PlainBytes is the size of their values before compression and encryption, as far as
	// known.
	PlainBytes int64
}

func (u *Usage) add(other Usage) {
	u.Objects += other.Objects
	u.Bytes += other.Bytes
	u.PlainBytes += other.PlainBytes
}

// Handler is notified of changes. It must not block.
type Handler interface {
	// UsageChanged reports that the usage of a resource changed.
	UsageChanged(schema.GroupResource)
	// AllUsageChanged reports that the usage of any resource may have changed.
	AllUsageChanged()
}

// Etcd is the part of an etcd client that a Tracker uses.
type Etcd interface {
	Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error)
	Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan
	RequestProgress(ctx context.Context) error
}

// Tracker keeps the usage of all resources below one prefix.
type Tracker struct {
	annexEtcd Etcd
	root      string
	sizer     sizer
	retry     wait.Backoff

	synced     chan struct{}
	syncedOnce sync.Once

	handlers observers.Set[Handler]

	mu       sync.RWMutex
	counts   *counts
	revision int64
	// moved, if not nil, is closed when the revision changes.
	moved chan struct{}
}

// NewTracker returns a Tracker of the keys below the API server's storage prefix. Without
// plainSize all values count as plain.
func NewTracker(annexEtcd Etcd, prefix string, plainSize SizeFunc) *Tracker {
	root := keys.Root(prefix)
	return &Tracker{
		annexEtcd: annexEtcd,
		root:      root,
		sizer:     sizer{root: root, plainSize: plainSize, unknown: map[string]struct{}{}},
		counts:    newCounts(root),
		synced:    make(chan struct{}),
		retry:     wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 5 * time.Second},
	}
}

// AddHandler registers a handler until remove is called. After remove returns, the handler
// is not called. Neither may be called by a handler. Earlier changes are not reported.
func (t *Tracker) AddHandler(handler Handler) (remove func()) {
	return t.handlers.Add(handler)
}

// HasSynced reports whether the usage is known.
func (t *Tracker) HasSynced() bool {
	select {
	case <-t.synced:
		return true
	default:
		return false
	}
}

// Synced is closed when the usage is known.
func (t *Tracker) Synced() <-chan struct{} { return t.synced }

// Usage returns the usage of a resource. Keys without a group, such as the keys of
// Kubernetes' own kinds, count for the empty group.
func (t *Tracker) Usage(resource schema.GroupResource) Usage {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.counts.of(resource).usage
}

// Namespace returns the usage of a resource in a namespace.
func (t *Tracker) Namespace(resource schema.GroupResource, namespace string) Usage {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if in := t.counts.of(resource).byNamespace[namespace]; in != nil {
		return *in
	}
	return Usage{}
}

// Namespaces returns the usage of a resource by namespace.
func (t *Tracker) Namespaces(resource schema.GroupResource) map[string]Usage {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := map[string]Usage{}
	for namespace, in := range t.counts.of(resource).byNamespace {
		all[namespace] = *in
	}
	return all
}

// Total returns the usage of all resources.
func (t *Tracker) Total() Usage {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.counts.total
}

// Revision returns the revision of etcd that the usage is exact for. Writes outside the
// prefix may be newer.
func (t *Tracker) Revision() int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.revision
}

// Run tracks until ctx is done. It retries while etcd is unavailable.
func (t *Tracker) Run(ctx context.Context) {
	logger := klog.LoggerWithName(klog.FromContext(ctx), "usage")
	// A member that is disconnected from its cluster ends the watch then.
	ctx = clientv3.WithRequireLeader(ctx)
	backoff := t.retry
	for ctx.Err() == nil {
		followed, err := t.step(ctx)
		if ctx.Err() != nil {
			return
		}
		if followed {
			backoff = t.retry
		}
		logger.V(2).Info("Restarting the tracking of usage", "revision", t.Revision(), "reason", err)
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Step()):
		}
	}
}

// step reads all keys if necessary and then follows them until that fails.
func (t *Tracker) step(ctx context.Context) (followed bool, err error) {
	if t.Revision() == 0 {
		if err := t.load(ctx); err != nil {
			return false, err
		}
	}
	followed, err = t.follow(ctx)
	if errors.Is(err, errReload) {
		t.mu.Lock()
		t.setRevision(0)
		t.mu.Unlock()
	}
	return followed, err
}

// advance is called when there are no events up to a revision.
func (t *Tracker) advance(revision int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.setRevision(max(t.revision, revision))
}

// replace sets counts of all keys.
func (t *Tracker) replace(fresh *counts, revision int64) {
	t.mu.Lock()
	t.counts = fresh
	t.setRevision(revision)
	t.mu.Unlock()
	t.syncedOnce.Do(func() { close(t.synced) })
	t.handlers.Notify(Handler.AllUsageChanged)
}

// apply counts the events of a response, all or none.
func (t *Tracker) apply(events []*clientv3.Event, revision int64) error {
	deltas, err := t.sizer.deltas(events)
	if err != nil {
		return err
	}
	for _, resource := range t.count(events, deltas, revision) {
		t.handlers.Notify(func(handler Handler) { handler.UsageChanged(resource) })
	}
	return nil
}

func (t *Tracker) count(events []*clientv3.Event, deltas []Usage, revision int64) []schema.GroupResource {
	t.mu.Lock()
	defer t.mu.Unlock()
	var changed []schema.GroupResource
	for i, event := range events {
		if counter := t.counts.count(event.Kv.Key, deltas[i]); counter != nil && !counter.changed {
			counter.changed = true
			changed = append(changed, counter.resource)
		}
	}
	t.setRevision(revision)
	t.counts.settle(changed)
	return changed
}

// setRevision requires t.mu.
func (t *Tracker) setRevision(revision int64) {
	t.revision = revision
	if t.moved != nil {
		close(t.moved)
		t.moved = nil
	}
}

// WaitFor waits until the usage includes all writes up to a revision of etcd.
func (t *Tracker) WaitFor(ctx context.Context, revision int64) error {
	var request <-chan time.Time
	for {
		moved := t.movedFrom(revision)
		if moved == nil {
			return nil
		}
		if request == nil {
			request = time.Tick(progressDelay)
		}
		select {
		case <-moved:
		case <-request:
			// WithRequireLeader selects the stream of the watch. An error ends the watch
			// too, which is then restarted.
			_ = t.annexEtcd.RequestProgress(clientv3.WithRequireLeader(ctx))
		case <-ctx.Done():
			return fmt.Errorf("wait for the usage below %s at revision %d, it is at %d: %w", t.root, revision, t.Revision(), context.Cause(ctx))
		}
	}
}

// movedFrom returns a channel that is closed when the revision changes, or nil if the
// revision is reached.
func (t *Tracker) movedFrom(revision int64) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.revision >= revision {
		return nil
	}
	if t.moved == nil {
		t.moved = make(chan struct{})
	}
	return t.moved
}
