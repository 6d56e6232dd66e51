// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// firstBackoff and maxBackoff bound how long a resource waits that failed.
const (
	firstBackoff = time.Second
	maxBackoff   = time.Minute
)

// queueState is where in the queue an item is.
type queueState int

const (
	// stateInFlight is for an item that is being worked on.
	stateInFlight queueState = iota
	// stateActive items are decided on next.
	stateActive
	// stateBackoff items become active after a while.
	stateBackoff
	// stateUnschedulable items fit nowhere: they become active when a change makes them fit.
	stateUnschedulable
)

// item is a resource that waits for a Store.
type item struct {
	name     string
	priority int32
	// since is a number that grows: among equals the first that came is served first.
	since int64

	state queueState
	index int // in the heap of active items
	// again is set if it was added while it was worked on.
	again    bool
	timer    *time.Timer
	attempts int
	// reasons is what was in the way on each Store when nothing fitted.
	reasons map[string]string
}

// queue holds the resources that wait, each once.
type queue struct {
	mu      sync.Mutex
	items   map[string]*item
	active  activeItems
	counter int64
	// changes counts what was tried on unschedulable items. One that was decided on
	// meanwhile was not among them.
	changes int64
	// ready has a value if there may be active items.
	ready  chan struct{}
	closed bool
}

func newQueue() *queue {
	return &queue{items: map[string]*item{}, ready: make(chan struct{}, 1)}
}

// add makes a resource active, wherever it is. The item of one that is being worked
// on is decided on again after that.
func (q *queue) add(name string, priority int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i, found := q.items[name]
	if !found {
		q.counter++
		i = &item{name: name, since: q.counter, index: -1}
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

// remove forgets a resource that waits no more.
func (q *queue) remove(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, found := q.items[name]; found {
		q.takeOut(i)
		delete(q.items, name)
	}
}

// pop waits for the next item and returns how many changes there were until then. It
// returns false once ctx is done.
func (q *queue) pop(ctx context.Context) (name string, changes int64, ok bool) {
	for {
		if ctx.Err() != nil {
			return "", 0, false
		}
		q.mu.Lock()
		if len(q.active) > 0 {
			i := q.active[0]
			q.takeOut(i)
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

// addUnschedulable has a popped item wait for a change. If there was one since it was
// popped it is decided on again.
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

// backOff has a popped or unschedulable item tried again after a while, a longer one each time.
func (q *queue) backOff(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i, found := q.items[name]
	switch {
	case !found:
	case i.state == stateInFlight && i.again:
		q.activate(i)
	case i.state == stateInFlight, i.state == stateUnschedulable:
		q.wait(i)
	}
}

// release ends the work on a popped item that needs no Store any more. It is forgotten
// when the API says so, and not here: there may be another resource of the name.
func (q *queue) release(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, found := q.items[name]; found && i.state == stateInFlight && i.again {
		q.activate(i)
	}
}

// wait has an item become active later. The caller holds the lock.
func (q *queue) wait(i *item) {
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

// change tries a change on all unschedulable items: those it makes fit become active, and
// those that it keeps from fitting in other words, as affects says, back off.
func (q *queue) change(affects func(name string, reasons map[string]string) effect) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changes++
	for name, i := range q.items {
		// What backs off because of other words may fit now, too.
		if i.state != stateUnschedulable && (i.state != stateBackoff || i.reasons == nil) {
			continue
		}
		switch affects(name, i.reasons) {
		case fits:
			q.activate(i)
		case messageChanged:
			if i.state == stateUnschedulable {
				q.wait(i)
			}
		case unaffected:
		}
	}
}

// effect is what a change does to an unschedulable item.
type effect int

const (
	unaffected effect = iota
	messageChanged
	fits
)

// activate makes an item the queue's to hand out. The caller holds the lock.
func (q *queue) activate(i *item) {
	q.takeOut(i)
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

// takeOut takes an item from where it is. The caller holds the lock.
func (q *queue) takeOut(i *item) {
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

// lengths counts the items by where they are.
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
		q.takeOut(i)
	}
}

// activeItems is a heap: the highest priority first, then the first that came.
type activeItems []*item

func (a activeItems) Len() int { return len(a) }

func (a activeItems) Less(i, j int) bool {
	if a[i].priority != a[j].priority {
		return a[i].priority > a[j].priority
	}
	return a[i].since < a[j].since
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
