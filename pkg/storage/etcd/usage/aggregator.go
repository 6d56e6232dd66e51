// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/observers"
)

// StoreHandler is notified of changes per Store. It must not block.
type StoreHandler interface {
	// StoreUsageChanged reports that the usage of a Store changed, or that the Store was
	// added or removed.
	StoreUsageChanged(store string)
}

// Aggregator adds up the usage of Stores, which have a Tracker each.
type Aggregator struct {
	// Handlers are called without mu.
	handlers      observers.Set[Handler]
	storeHandlers observers.Set[StoreHandler]

	mu     sync.RWMutex
	stores map[string]*member
}

type member struct {
	tracker *Tracker
	// unregister removes the Aggregator's handler from the tracker.
	unregister func()
}

// NewAggregator returns an Aggregator without Stores.
func NewAggregator() *Aggregator { return &Aggregator{stores: map[string]*member{}} }

// Add adds a Store, or replaces its Tracker. The caller runs the Tracker.
func (a *Aggregator) Add(store string, tracker *Tracker) {
	added := &member{tracker: tracker, unregister: tracker.AddHandler(storeForwarder{a, store})}
	a.mu.Lock()
	replaced := a.stores[store]
	a.stores[store] = added
	a.mu.Unlock()
	if replaced != nil {
		replaced.unregister()
	}
	storeForwarder{a, store}.AllUsageChanged()
}

// Remove removes a Store.
func (a *Aggregator) Remove(store string) {
	a.mu.Lock()
	removed := a.stores[store]
	delete(a.stores, store)
	a.mu.Unlock()
	if removed == nil {
		return
	}
	removed.unregister()
	storeForwarder{a, store}.AllUsageChanged()
}

// AddHandler registers a handler for all Stores, like Tracker.AddHandler.
func (a *Aggregator) AddHandler(handler Handler) (remove func()) {
	return a.handlers.Add(handler)
}

// AddStoreHandler registers a handler that is notified per Store instead of per resource.
func (a *Aggregator) AddStoreHandler(handler StoreHandler) (remove func()) {
	return a.storeHandlers.Add(handler)
}

// Usage returns the usage of a resource in all Stores.
func (a *Aggregator) Usage(resource schema.GroupResource) Usage {
	var sum Usage
	for _, tracker := range a.trackers() {
		sum.add(tracker.Usage(resource))
	}
	return sum
}

// Namespaces returns the usage of a resource in a Store, by namespace.
func (a *Aggregator) Namespaces(store string, resource schema.GroupResource) map[string]Usage {
	if tracker := a.Tracker(store); tracker != nil {
		return tracker.Namespaces(resource)
	}
	return nil
}

// Store returns the usage of all resources in a Store, or false while it is unknown.
func (a *Aggregator) Store(store string) (total Usage, known bool) {
	if tracker := a.Tracker(store); tracker != nil {
		return tracker.Total(), tracker.HasSynced()
	}
	return Usage{}, false
}

// In returns the usage of a resource in a Store, or false while it is unknown.
func (a *Aggregator) In(store string, resource schema.GroupResource) (usage Usage, known bool) {
	if tracker := a.Tracker(store); tracker != nil {
		return tracker.Usage(resource), tracker.HasSynced()
	}
	return Usage{}, false
}

// Tracker returns the Tracker of a Store, or nil.
func (a *Aggregator) Tracker(store string) *Tracker {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if found := a.stores[store]; found != nil {
		return found.tracker
	}
	return nil
}

func (a *Aggregator) trackers() []*Tracker {
	a.mu.RLock()
	defer a.mu.RUnlock()
	trackers := make([]*Tracker, 0, len(a.stores))
	for _, summand := range a.stores {
		trackers = append(trackers, summand.tracker)
	}
	return trackers
}

// storeForwarder is the Aggregator's Handler of a Store's Tracker.
type storeForwarder struct {
	aggregator *Aggregator
	store      string
}

// UsageChanged implements Handler.
func (f storeForwarder) UsageChanged(resource schema.GroupResource) {
	f.notify(func(handler Handler) { handler.UsageChanged(resource) })
}

// AllUsageChanged implements Handler.
func (f storeForwarder) AllUsageChanged() { f.notify(Handler.AllUsageChanged) }

func (f storeForwarder) notify(call func(Handler)) {
	f.aggregator.handlers.Notify(call)
	f.aggregator.storeHandlers.Notify(func(handler StoreHandler) { handler.StoreUsageChanged(f.store) })
}
