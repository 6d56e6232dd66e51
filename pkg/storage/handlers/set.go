// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package handlers notifies those that have registered for changes.
package handlers

import "sync"

// Set is a set of handlers. Its zero value is empty. Handlers are notified with mu held, so that a
// removed handler is no longer called once remove returns.
type Set[H any] struct {
	mu  sync.Mutex
	all map[*H]struct{} // pointers, because equal handlers are separate
}

// Add adds a handler until remove is called, which a handler must not do.
func (s *Set[H]) Add(handler H) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*H]struct{}{}
	}
	s.all[&handler] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, &handler)
	}
}

// Notify calls call with each handler.
func (s *Set[H]) Notify(call func(H)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for handler := range s.all {
		call(*handler)
	}
}
