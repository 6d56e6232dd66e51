// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import "sync"

// handlers are those who are told of something. The lock keeps them from being told
// while they change: who was removed is not called any more.
type handlers[H any] struct {
	mu  sync.Mutex
	all map[*H]struct{} // so that one of two equal handlers can be removed
}

// add has a handler told until remove is called.
func (h *handlers[H]) add(handler H) (remove func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[*H]struct{}{}
	}
	h.all[&handler] = struct{}{}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.all, &handler)
	}
}

// notify calls each handler.
func (h *handlers[H]) notify(call func(H)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for handler := range h.all {
		call(*handler)
	}
}
