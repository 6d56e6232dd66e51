// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"iter"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/standalone/controller/metadatainformers"
)

// An object exists, or its creation has failed, at the latest landingPeriod after its charge.
// It is far longer than a write, and bounds the time for which a failed creation is charged.
const landingPeriod = 10 * time.Second

// charge is an observed increase of status.used.
type charge struct {
	at      time.Time
	objects int64
}

// meter computes the usage for one limit of a quota. It is not safe for concurrent use.
type meter struct {
	known bool
	// used is the last observed usage, and deleted the number of deletions that it
	// includes.
	used, deleted int64
	// charges are the ones with objects that may not be observed yet, oldest first.
	charges []charge
}

// read returns the usage to write in place of used, given a tally. If charges are
// pending, it also returns when to read again. current means that the tally is up to
// date.
func (m *meter) read(used int64, counted tally, current bool, now time.Time) (shown int64, again time.Duration) {
	charged := used - m.used
	if !m.known {
		// Objects that are not in the tally may just have been charged.
		*m = meter{known: true, deleted: counted.deleted}
		charged = used - counted.count
	}
	m.used = used
	if charged > 0 {
		m.charges = append(m.charges, charge{at: now, objects: charged})
	}
	pending := m.pending(now)
	shown = used - (counted.deleted - m.deleted)
	if current {
		shown = min(shown, counted.count+pending)
	}
	shown = max(shown, counted.count)
	switch {
	case shown <= counted.count:
		return shown, 0
	case len(m.charges) == 0:
		return shown, landingPeriod
	default:
		return shown, m.charges[0].at.Add(landingPeriod).Sub(now)
	}
}

// pending returns how many charged objects may not be observed yet.
func (m *meter) pending(now time.Time) int64 {
	for len(m.charges) > 0 && now.Sub(m.charges[0].at) >= landingPeriod {
		m.charges = m.charges[1:]
	}
	var objects int64
	for _, c := range m.charges {
		objects += c.objects
	}
	return objects
}

// shows records that the quota has the usage that read returned for a tally.
func (m *meter) shows(used int64, counted tally) {
	m.known, m.used, m.deleted = true, used, counted.deleted
}

// place is a namespace and a resource.
type place struct {
	resource  schema.GroupResource
	namespace string
}

// tally is the number of objects in a place, and of observed deletions there. Both change
// together, so the informers' count does not suffice.
type tally struct {
	count, deleted int64
}

// ledger has the tallies of all places with objects.
type ledger struct {
	// counted reports whether a namespace has a quota. Deletions in others are not
	// recorded.
	counted func(namespace string) bool
	// changed is called after a tally changed.
	changed func(place)
	// synced is called when the tallies of a resource are complete.
	synced func(schema.GroupResource)

	mu      sync.Mutex
	tallies map[place]tally
}

var _ metadatainformers.Handler = &ledger{}

func (l *ledger) at(p place) tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tallies[p]
}

func (l *ledger) change(resource metadatainformers.Resource, object *metadatainformers.Object, came, went int64) {
	if !resource.Namespaced {
		return
	}
	p := place{resource.GroupResource(), object.Namespace}
	l.mu.Lock()
	t := l.tallies[p]
	t.count += came - went
	t.deleted += went
	l.tallies[p] = t
	if t.count == 0 && !l.counted(p.namespace) {
		delete(l.tallies, p)
	}
	l.mu.Unlock()
	l.changed(p)
}

// Added implements metadatainformers.Handler.
func (l *ledger) Added(resource metadatainformers.Resource, object *metadatainformers.Object) {
	l.change(resource, object, 1, 0)
}

// Updated implements metadatainformers.Handler. A recreated object counts as two
// unobserved changes.
func (l *ledger) Updated(resource metadatainformers.Resource, before, after *metadatainformers.Object) {
	if before.UID != after.UID {
		l.change(resource, after, 1, 1)
	}
}

// Deleted implements metadatainformers.Handler.
func (l *ledger) Deleted(resource metadatainformers.Resource, object *metadatainformers.Object) {
	l.change(resource, object, 0, 1)
}

// Synced implements metadatainformers.Handler.
func (l *ledger) Synced(resource metadatainformers.Resource) { l.synced(resource.GroupResource()) }

// Dropped implements metadatainformers.Handler. Resources that are not served have no
// objects.
func (l *ledger) Dropped(resource metadatainformers.Resource, objects iter.Seq[*metadatainformers.Object]) {
	for object := range objects {
		l.change(resource, object, 0, 1)
	}
	l.synced(resource.GroupResource())
}
