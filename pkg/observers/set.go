// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observers has sets of callbacks. Watch caches, Stores and static objects notify them of changes.
package observers

import "sync"

// Set is a set of observers. Its zero value is empty. Observers are notified with mu held, so that
// none is called after its remove has returned.
type Set[O any] struct {
	mu  sync.Mutex
	all map[*O]struct{} // pointers, because equal observers are separate
}

// Add adds an observer until remove is called, which an observer must not do.
func (s *Set[O]) Add(observer O) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*O]struct{}{}
	}
	s.all[&observer] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, &observer)
	}
}

// Notify calls call with each observer.
func (s *Set[O]) Notify(call func(O)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for observer := range s.all {
		call(*observer)
	}
}
