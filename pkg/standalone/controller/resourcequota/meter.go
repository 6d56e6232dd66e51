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

// landingPeriod is how long after an object was charged it is there, or will never
// be. It is far more than a write takes, and bounds how long a charge is kept whose
// create failed.
const landingPeriod = 10 * time.Second

// charge is a rise of what is used that was seen at some time.
type charge struct {
	at      time.Time
	objects int64
}

// meter says what one limit of a quota has to show as used. It is used by one
// goroutine at a time.
type meter struct {
	known bool
	// used is what the quota was seen to show last, and deleted how many objects
	// were gone that it does not show any more.
	used, deleted int64
	// charges are those whose objects may not be seen yet, oldest first.
	charges []charge
}

// read returns what should be shown in place of used, where so much is counted. If
// that is more than the count, it should be read again after the time returned.
// current says that the count is not behind.
func (m *meter) read(used int64, counted tally, current bool, now time.Time) (shown int64, again time.Duration) {
	charged := used - m.used
	if !m.known {
		// Whoever charged what cannot be seen may just have done so.
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

// pending is how many objects may have been charged and not be seen yet.
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

// shows notes that the quota shows what read returned for a tally.
func (m *meter) shows(used int64, counted tally) {
	m.known, m.used, m.deleted = true, used, counted.deleted
}

// place is where objects are counted.
type place struct {
	resource  schema.GroupResource
	namespace string
}

// tally is how many objects there are in a place, and how many were seen to go from
// there. Both change together, which is why the count is not asked for elsewhere.
type tally struct {
	count, deleted int64
}

// ledger has the tally of every place with objects.
type ledger struct {
	// counted reports whether there is a quota in a namespace: where there is none,
	// nothing has to be remembered of what is gone.
	counted func(namespace string) bool
	// changed is told after a tally changed.
	changed func(place)
	// synced is told that a resource's tallies are complete.
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

// Updated implements metadatainformers.Handler. One object in the place of another
// of its name is two changes of which none was seen.
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

// Dropped implements metadatainformers.Handler: what is not served is not there.
func (l *ledger) Dropped(resource metadatainformers.Resource, objects iter.Seq[*metadatainformers.Object]) {
	for object := range objects {
		l.change(resource, object, 0, 1)
	}
	l.synced(resource.GroupResource())
}
