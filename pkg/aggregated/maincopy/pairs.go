// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// UIDAnnotation on an object in the main cluster that was created for one of annex is the UID
// of that one. It is not part of the object's content, and RemoveMarks removes it.
const UIDAnnotation = "annex.dev/uid"

// Pairs holds the UIDs of objects that were created in annex, and of those that were created
// for them in the main cluster. The Syncers of a group share one.
type Pairs struct {
	mu      sync.Mutex
	created map[types.UID]types.UID
	// absent are UIDs that no object has. Objects that are gone have one of these in created.
	absent sets.Set[types.UID]
	// waiting are the objects with an owner that has no pair yet. Most owners never get one.
	waiting map[types.UID]map[waiter]struct{}
}

// waiter is an object to compare again.
type waiter struct {
	queue *queue
	key   key
}

// NewPairs returns an empty Pairs. Syncers fill it from what the main cluster has.
func NewPairs() *Pairs {
	return &Pairs{created: map[types.UID]types.UID{}, absent: sets.New[types.UID](), waiting: map[types.UID]map[waiter]struct{}{}}
}

// All returns a copy: UIDs in the main cluster by UIDs in annex.
func (p *Pairs) All() map[types.UID]types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.created)
}

// add records a pair, and queues the objects that wait for it.
func (p *Pairs) add(annex, main types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.created[annex] == main {
		return
	}
	p.created[annex] = main
	for waiting := range p.waiting[annex] {
		waiting.queue.add(waiting.key)
	}
}

// gone gives an object of the main cluster that is gone a UID that no object has.
func (p *Pairs) gone(main types.UID) types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.created[main] == "" {
		absent := uuid.NewUUID()
		p.absent.Insert(absent)
		p.created[main] = absent
	}
	return p.created[main]
}

// isAbsent reports whether gone returned a UID.
func (p *Pairs) isAbsent(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.absent.Has(uid)
}

// inMain returns the UID in the main cluster of an object of annex.
func (p *Pairs) inMain(annex types.UID) types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	if main, ok := p.created[annex]; ok {
		return main
	}
	return annex
}

// wait queues an object whenever the UID of one of its owners changes.
func (p *Pairs) wait(owner types.UID, w waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting[owner] == nil {
		p.waiting[owner] = map[waiter]struct{}{}
	}
	p.waiting[owner][w] = struct{}{}
}
