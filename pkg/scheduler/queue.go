// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// firstBackoff and maxBackoff bound the delay before a failed resource is tried again.
const (
	firstBackoff = time.Second
	maxBackoff   = time.Minute
)

type queueState int

const (
	// stateInFlight items were popped.
	stateInFlight queueState = iota
	// stateActive items are popped next.
	stateActive
	// stateBackoff items become active after a delay.
	stateBackoff
	// stateUnschedulable items fit on no Store. A change that makes them fit activates them.
	stateUnschedulable
)

// item is a resource that waits for a Store.
type item struct {
	name     string
	priority int32
	// sequence orders items of the same priority, first in first out.
	sequence int64

	state queueState
	index int // in the heap of active items
	// again is set if the item was added while it was in flight.
	again    bool
	timer    *time.Timer
	attempts int
	// reasons are by Store, of the last decision.
	reasons map[string]string
}

// queue holds the resources that wait for a Store.
type queue struct {
	mu      sync.Mutex
	items   map[string]*item
	active  activeItems
	counter int64
	// changes counts the calls of change, which do not see items in flight.
	changes int64
	// ready has a value if there may be active items.
	ready  chan struct{}
	closed bool
}

func newQueue() *queue {
	return &queue{items: map[string]*item{}, ready: make(chan struct{}, 1)}
}

// add makes a resource active in any state. An item in flight becomes active again when
// it is returned.
func (q *queue) add(name string, priority int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i, found := q.items[name]
	if !found {
		q.counter++
		i = &item{name: name, sequence: q.counter, index: -1}
		q.items[name] = i
	}
	i.priority = priority
	i.attempts = 0
	switch {
	case found && i.state == stateInFlight:
		i.again = true
	case i.state == stateActive:
		heap.Fix(&q.active, i.index)
	default:
		q.activate(i)
	}
}

// remove removes a resource that no longer waits.
func (q *queue) remove(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, found := q.items[name]; found {
		q.detach(i)
		delete(q.items, name)
	}
}

// pop waits for the next item, and returns the number of changes so far. It returns
// false once ctx is done.
func (q *queue) pop(ctx context.Context) (name string, changes int64, ok bool) {
	for {
		if ctx.Err() != nil {
			return "", 0, false
		}
		q.mu.Lock()
		if len(q.active) > 0 {
			i := q.active[0]
			q.detach(i)
			i.again = false
			changes := q.changes
			q.mu.Unlock()
			return i.name, changes, true
		}
		q.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-q.ready:
		}
	}
}

// addUnschedulable makes a popped item wait for a change. If there was one since it was
// popped, the item becomes active at once.
func (q *queue) addUnschedulable(name string, reasons map[string]string, changes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i, found := q.items[name]
	if !found || i.state != stateInFlight {
		return
	}
	if i.again || changes != q.changes {
		q.activate(i)
		return
	}
	i.state, i.reasons = stateUnschedulable, reasons
}

// backOff activates a popped or unschedulable item after a delay, which grows.
func (q *queue) backOff(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i, found := q.items[name]
	switch {
	case !found:
	case i.state == stateInFlight && i.again:
		q.activate(i)
	case i.state == stateInFlight, i.state == stateUnschedulable:
		q.activateLater(i)
	}
}

// done ends the work on a popped item that no longer needs a Store. The informer removes
// it, not done: there may be a new resource of the name.
func (q *queue) done(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, found := q.items[name]; found && i.state == stateInFlight && i.again {
		q.activate(i)
	}
}

// activateLater requires q.mu.
func (q *queue) activateLater(i *item) {
	if q.closed {
		return
	}
	delay := min(firstBackoff<<min(i.attempts, 10), maxBackoff)
	i.attempts++
	i.state = stateBackoff
	i.timer = time.AfterFunc(delay, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if i.state == stateBackoff && q.items[i.name] == i {
			q.activate(i)
		}
	})
}

// change applies a change to all unschedulable items: those that fit now become active,
// those whose reasons changed back off.
func (q *queue) change(affects func(name string, reasons map[string]string) effect) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changes++
	for name, i := range q.items {
		// Items that back off because their reasons changed may fit now, too.
		if i.state != stateUnschedulable && (i.state != stateBackoff || i.reasons == nil) {
			continue
		}
		switch affects(name, i.reasons) {
		case fits:
			q.activate(i)
		case reasonsChanged:
			if i.state == stateUnschedulable {
				q.activateLater(i)
			}
		case unaffected:
		}
	}
}

// effect is what a change does to an unschedulable item.
type effect int

const (
	unaffected effect = iota
	reasonsChanged
	fits
)

// activate requires q.mu.
func (q *queue) activate(i *item) {
	q.detach(i)
	i.reasons = nil
	i.state = stateActive
	if q.closed {
		return
	}
	heap.Push(&q.active, i)
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// detach puts an item in flight. It requires q.mu.
func (q *queue) detach(i *item) {
	switch i.state {
	case stateActive:
		if i.index >= 0 {
			heap.Remove(&q.active, i.index)
		}
	case stateBackoff:
		i.timer.Stop()
	case stateInFlight, stateUnschedulable:
	}
	i.state = stateInFlight
}

// lengths counts the items by state.
func (q *queue) lengths() map[queueState]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	lengths := map[queueState]int{stateActive: 0, stateBackoff: 0, stateUnschedulable: 0}
	for _, i := range q.items {
		if i.state != stateInFlight {
			lengths[i.state]++
		}
	}
	return lengths
}

// close stops all timers.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, i := range q.items {
		q.detach(i)
	}
}

// activeItems is a heap, ordered by priority and sequence.
type activeItems []*item

func (a activeItems) Len() int { return len(a) }

func (a activeItems) Less(i, j int) bool {
	if a[i].priority != a[j].priority {
		return a[i].priority > a[j].priority
	}
	return a[i].sequence < a[j].sequence
}

func (a activeItems) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].index, a[j].index = i, j
}

func (a *activeItems) Push(x any) {
	i := x.(*item)
	i.index = len(*a)
	*a = append(*a, i)
}

func (a *activeItems) Pop() any {
	last := len(*a) - 1
	i := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	i.index = -1
	return i
}
