// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"net/http"
	"sync/atomic"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

type repeatKey struct{}

// repeatNow marks the write of a context, so that its client repeats it at once if it is refused with 503.
func repeatNow(ctx context.Context) {
	if now, ok := ctx.Value(repeatKey{}).(*atomic.Bool); ok {
		now.Store(true)
	}
}

// WithRepeats lets clients repeat a write at once that waited while its resource was returned to the main cluster.
// A Kubernetes API status cannot: upstream sends the header Retry-After, without which client-go does not repeat a
// request, only if it is a second or more.
func WithRepeats(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodGet {
			next.ServeHTTP(w, req)
			return
		}
		now := &atomic.Bool{}
		req = req.WithContext(context.WithValue(req.Context(), repeatKey{}, now))
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(&repeatWriter{ResponseWriter: w, now: now}), req)
	})
}

type repeatWriter struct {
	http.ResponseWriter
	now *atomic.Bool
}

var _ responsewriter.UserProvidedDecorator = &repeatWriter{}

// Unwrap returns the decorated writer.
func (w *repeatWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader sets the header.
func (w *repeatWriter) WriteHeader(code int) {
	if code == http.StatusServiceUnavailable && w.now.Load() {
		w.Header().Set("Retry-After", "0")
	}
	w.ResponseWriter.WriteHeader(code)
}
