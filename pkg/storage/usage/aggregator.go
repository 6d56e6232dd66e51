// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// StoreHandler is told in which Store something changed. It must not block.
type StoreHandler interface {
	// StoreUsageChanged says that what a Store holds is another than before, or
	// that the Store came or went.
	StoreUsageChanged(store string)
}

// Aggregator is the usage of several Stores, each with its Tracker, together. Stores come
// and go while it is read.
type Aggregator struct {
	// Handlers are never told anything with mu locked.
	handlers      handlers[Handler]
	storeHandlers handlers[StoreHandler]

	mu     sync.RWMutex
	stores map[string]*member
}

// member is one Store's part.
type member struct {
	tracker *Tracker
	// unregister ends the reports of the tracker to the sum.
	unregister func()
}

// NewAggregator returns a sum of no Store.
func NewAggregator() *Aggregator { return &Aggregator{stores: map[string]*member{}} }

// Add counts a Store in, in place of the Tracker it may have had before. The
// Tracker is the caller's to run.
func (s *Aggregator) Add(store string, tracker *Tracker) {
	added := &member{tracker: tracker, unregister: tracker.AddHandler(storeForwarder{s, store})}
	s.mu.Lock()
	replaced := s.stores[store]
	s.stores[store] = added
	s.mu.Unlock()
	if replaced != nil {
		replaced.unregister()
	}
	storeForwarder{s, store}.AllUsageChanged()
}

// Remove counts a Store out.
func (s *Aggregator) Remove(store string) {
	s.mu.Lock()
	removed := s.stores[store]
	delete(s.stores, store)
	s.mu.Unlock()
	if removed == nil {
		return
	}
	removed.unregister()
	storeForwarder{s, store}.AllUsageChanged()
}

// AddHandler is as that of a Tracker, for all Stores.
func (s *Aggregator) AddHandler(handler Handler) (remove func()) {
	return s.handlers.add(handler)
}

// AddStoreHandler is AddHandler for who asks where something changed, not of what.
func (s *Aggregator) AddStoreHandler(handler StoreHandler) (remove func()) {
	return s.storeHandlers.add(handler)
}

// Usage is the usage of one resource, wherever it is.
func (s *Aggregator) Usage(resource schema.GroupResource) Usage {
	var sum Usage
	for _, tracker := range s.trackers() {
		sum.add(tracker.Usage(resource))
	}
	return sum
}

// Namespaces is the usage of one resource, wherever it is, in every namespace that
// has some of it.
func (s *Aggregator) Namespaces(resource schema.GroupResource) map[string]Usage {
	sum := map[string]Usage{}
	for _, tracker := range s.trackers() {
		for namespace, usage := range tracker.Namespaces(resource) {
			usage.add(sum[namespace])
			sum[namespace] = usage
		}
	}
	return sum
}

// Store is the usage of all resources in one Store, and false while that is not
// known.
func (s *Aggregator) Store(store string) (total Usage, known bool) {
	if tracker := s.Tracker(store); tracker != nil {
		return tracker.Total(), tracker.HasSynced()
	}
	return Usage{}, false
}

// In is the usage of one resource in one Store, and false while that is not known.
func (s *Aggregator) In(store string, resource schema.GroupResource) (usage Usage, known bool) {
	if tracker := s.Tracker(store); tracker != nil {
		return tracker.Usage(resource), tracker.HasSynced()
	}
	return Usage{}, false
}

// Tracker is the one of a Store, nil if the Store is not counted.
func (s *Aggregator) Tracker(store string) *Tracker {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if found := s.stores[store]; found != nil {
		return found.tracker
	}
	return nil
}

func (s *Aggregator) trackers() []*Tracker {
	s.mu.RLock()
	defer s.mu.RUnlock()
	trackers := make([]*Tracker, 0, len(s.stores))
	for _, summand := range s.stores {
		trackers = append(trackers, summand.tracker)
	}
	return trackers
}

// storeForwarder is the Handler of one Store's Tracker.
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
	f.aggregator.handlers.notify(call)
	f.aggregator.storeHandlers.notify(func(handler StoreHandler) { handler.StoreUsageChanged(f.store) })
}
