// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"path"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// Usage is what etcd holds of a resource.
type Usage struct {
	// Objects is the number of objects.
	Objects int64
	// Bytes is the size of their values as etcd keeps them: encoded, and
	// compressed or encrypted if they are, without keys and without history.
	Bytes int64
}

func (u *Usage) add(other Usage) {
	u.Objects += other.Objects
	u.Bytes += other.Bytes
}

// Handler is told of changes. It must not block.
type Handler interface {
	// UsageChanged says that the usage of one resource is another than before.
	UsageChanged(schema.GroupResource)
	// AllUsageChanged says that any may be, as when it becomes known.
	AllUsageChanged()
}

// Tracker keeps the usage of all resources below one prefix.
type Tracker struct {
	annexEtcd *clientv3.Client
	root      string
	retry     wait.Backoff

	synced     chan struct{}
	syncedOnce sync.Once

	// handling keeps handlers from being told while they change: who was removed
	// is not called any more.
	handling sync.Mutex
	handlers map[*registration]struct{}

	mu       sync.RWMutex
	counts   *counts
	revision int64
}

// registration makes one of two equal handlers removable.
type registration struct{ Handler }

// NewTracker returns a Tracker of the keys below prefix, which does nothing before
// Run. The prefix is the one given to the API server, with or without slashes
// around it.
func NewTracker(annexEtcd *clientv3.Client, prefix string) *Tracker {
	root := path.Join("/", prefix)
	if root != "/" {
		root += "/"
	}
	return &Tracker{
		annexEtcd: annexEtcd,
		root:      root,
		counts:    newCounts(root),
		handlers:  map[*registration]struct{}{},
		synced:    make(chan struct{}),
		retry:     wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 5 * time.Second},
	}
}

// AddHandler has changes reported to a handler until remove is called, which
// returns when the last call of the handler has. It must not be called by a
// handler. What changed before is for the caller to read.
func (t *Tracker) AddHandler(handler Handler) (remove func()) {
	r := &registration{handler}
	t.handling.Lock()
	defer t.handling.Unlock()
	t.handlers[r] = struct{}{}
	return func() {
		t.handling.Lock()
		defer t.handling.Unlock()
		delete(t.handlers, r)
	}
}

// tell calls each handler.
func (t *Tracker) tell(call func(Handler)) {
	t.handling.Lock()
	defer t.handling.Unlock()
	for r := range t.handlers {
		call(r.Handler)
	}
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

// Usage is the usage of one resource; zero for one that has no objects. Resources
// whose keys name no group, as those of the Kubernetes kinds, are found
// under the empty group.
func (t *Tracker) Usage(resource schema.GroupResource) Usage {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.counts.of(resource)
}

// Total is the usage of all resources together.
func (t *Tracker) Total() Usage {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.counts.total
}

// All is the usage of every resource that has objects, or had some since the last
// time that everything was read.
func (t *Tracker) All() map[schema.GroupResource]Usage {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.counts.all()
}

// Revision is the revision of etcd that the usage is exact for. Writes elsewhere in
// etcd may be newer.
func (t *Tracker) Revision() int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.revision
}

// Run tracks until ctx is done. It outlasts an etcd that is away.
func (t *Tracker) Run(ctx context.Context) {
	logger := klog.LoggerWithName(klog.FromContext(ctx), "usage")
	// With a leader required, a member cut off from its cluster ends the watch
	// instead of keeping silent.
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
		logger.V(2).Info("Reading the usage of storage again", "revision", t.Revision(), "reason", err)
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Step()):
		}
	}
}

// step reads everything if it must and then follows it, until that fails. It
// reports whether it could follow.
func (t *Tracker) step(ctx context.Context) (followed bool, err error) {
	if !t.following() {
		if err := t.load(ctx); err != nil {
			return false, err
		}
	}
	followed, err = t.follow(ctx)
	if errors.Is(err, errReload) {
		t.forgetRevision()
	}
	return followed, err
}

func (t *Tracker) following() bool { return t.Revision() > 0 }

// forgetRevision has everything read again; until then the counts stay.
func (t *Tracker) forgetRevision() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.revision = 0
}

// replace makes counts of a whole reading the current ones.
func (t *Tracker) replace(fresh *counts, revision int64) {
	t.mu.Lock()
	t.counts, t.revision = fresh, revision
	t.mu.Unlock()
	t.syncedOnce.Do(func() { close(t.synced) })
	t.tell(Handler.AllUsageChanged)
}

// apply counts the events of one response, all or none.
func (t *Tracker) apply(events []*clientv3.Event, revision int64) error {
	changed, err := t.applyLocked(events, revision)
	if err != nil {
		return err
	}
	for _, resource := range changed {
		t.tell(func(handler Handler) { handler.UsageChanged(resource) })
	}
	return nil
}

func (t *Tracker) applyLocked(events []*clientv3.Event, revision int64) ([]schema.GroupResource, error) {
	if slices.ContainsFunc(events, lacksPrevious) {
		return nil, errNoPrevious
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var changed []schema.GroupResource
	for _, event := range events {
		if counter := t.counts.count(event.Kv.Key, delta(event)); counter != nil && !counter.changed {
			counter.changed = true
			changed = append(changed, counter.resource)
		}
	}
	t.revision = revision
	t.counts.settle(changed)
	return changed, nil
}

// lacksPrevious reports whether etcd could not tell the value that an event
// replaced: it leaves it out when it is compacted before the event is delivered.
func lacksPrevious(event *clientv3.Event) bool {
	return event.PrevKv == nil && !event.IsCreate()
}

func delta(event *clientv3.Event) Usage {
	var d Usage
	if event.Type == clientv3.EventTypePut {
		d.add(Usage{Objects: 1, Bytes: int64(len(event.Kv.Value))})
	}
	if event.PrevKv != nil {
		d.add(Usage{Objects: -1, Bytes: -int64(len(event.PrevKv.Value))})
	}
	return d
}
