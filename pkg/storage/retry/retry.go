// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package retry lets storage tell a client to repeat a write at once. A Kubernetes API status cannot:
// upstream sends the header Retry-After, without which client-go does not repeat a request, only if it
// is a second or more.
package retry

import (
	"context"
	"net/http"
	"sync/atomic"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

type contextKey struct{}

// Now marks the write of a context, so that its client repeats it at once if it is refused with 503.
func Now(ctx context.Context) {
	if now, ok := ctx.Value(contextKey{}).(*atomic.Bool); ok {
		now.Store(true)
	}
}

// Handler sets the header for writes that were marked.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodGet {
			next.ServeHTTP(w, req)
			return
		}
		now := &atomic.Bool{}
		req = req.WithContext(context.WithValue(req.Context(), contextKey{}, now))
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(&writer{ResponseWriter: w, now: now}), req)
	})
}

type writer struct {
	http.ResponseWriter
	now *atomic.Bool
}

var _ responsewriter.UserProvidedDecorator = &writer{}

// Unwrap returns the decorated writer.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader sets the header.
func (w *writer) WriteHeader(code int) {
	if code == http.StatusServiceUnavailable && w.now.Load() {
		w.Header().Set("Retry-After", "0")
	}
	w.ResponseWriter.WriteHeader(code)
}
