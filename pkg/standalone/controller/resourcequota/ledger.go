// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"iter"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/standalone/controller/metadatainformers"
)

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
