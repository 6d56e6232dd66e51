// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import "sync"

// handlers are notified with mu held, so that a removed handler is no longer called once
// remove returns.
type handlers[H any] struct {
	mu  sync.Mutex
	all map[*H]struct{} // pointers, because equal handlers are separate
}

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

func (h *handlers[H]) notify(call func(H)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for handler := range h.all {
		call(*handler)
	}
}
