// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"path"
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
	// PlainBytes is the size of their values before compression and encryption,
	// as far as it is known.
	PlainBytes int64
}

func (u *Usage) add(other Usage) {
	u.Objects += other.Objects
	u.Bytes += other.Bytes
	u.PlainBytes += other.PlainBytes
}

// Handler is told of changes. It must not block.
type Handler interface {
	// UsageChanged says that the usage of one resource is another than before.
	UsageChanged(schema.GroupResource)
	// AllUsageChanged says that any may be, as when it becomes known.
	AllUsageChanged()
}

// Etcd is what a Tracker needs of an etcd client.
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

	handlers handlers[Handler]

	mu       sync.RWMutex
	counts   *counts
	revision int64
	// moved, if not nil, is closed when the revision changes.
	moved chan struct{}
}

// NewTracker returns a Tracker of the keys below prefix, which does nothing before
// Run. The prefix is the one given to the API server, with or without slashes
// around it. Without a measure all values are taken to be plain.
func NewTracker(annexEtcd Etcd, prefix string, measure SizeFunc) *Tracker {
	root := path.Join("/", prefix)
	if root != "/" {
		root += "/"
	}
	return &Tracker{
		annexEtcd: annexEtcd,
		root:      root,
		sizer:     sizer{root: root, plainSize: measure, unknown: map[string]struct{}{}},
		counts:    newCounts(root),
		synced:    make(chan struct{}),
		retry:     wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 5 * time.Second},
	}
}

// AddHandler has changes reported to a handler until remove is called, which
// returns when the last call of the handler has. It must not be called by a
// handler. What changed before is for the caller to read.
func (t *Tracker) AddHandler(handler Handler) (remove func()) {
	return t.handlers.add(handler)
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

// Namespace is the usage of one resource in one namespace.
func (t *Tracker) Namespace(resource schema.GroupResource, namespace string) Usage {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.counts.ofNamespace(resource, namespace)
}

// Namespaces is the usage of one resource in every namespace that has some of it.
func (t *Tracker) Namespaces(resource schema.GroupResource) map[string]Usage {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.counts.namespacesOf(resource)
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
	t.setRevision(0)
}

// advance says that nothing happened up to revision.
func (t *Tracker) advance(revision int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.setRevision(max(t.revision, revision))
}

// replace makes counts of a whole reading the current ones.
func (t *Tracker) replace(fresh *counts, revision int64) {
	t.mu.Lock()
	t.counts = fresh
	t.setRevision(revision)
	t.mu.Unlock()
	t.syncedOnce.Do(func() { close(t.synced) })
	t.handlers.notify(Handler.AllUsageChanged)
}

// apply counts the events of one response, all or none.
func (t *Tracker) apply(events []*clientv3.Event, revision int64) error {
	deltas, err := t.sizer.deltas(events)
	if err != nil {
		return err
	}
	for _, resource := range t.count(events, deltas, revision) {
		t.handlers.notify(func(handler Handler) { handler.UsageChanged(resource) })
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

// setRevision has t.mu locked.
func (t *Tracker) setRevision(revision int64) {
	t.revision = revision
	if t.moved != nil {
		close(t.moved)
		t.moved = nil
	}
}
