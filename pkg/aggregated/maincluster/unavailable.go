// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// errUnavailable is returned for a review that got no response, as opposed to a negative
// one. Callers, which may be unauthenticated, get nothing more; the cause is logged.
var errUnavailable = errors.New("the main cluster, which authenticates and authorizes requests, is not responding")

// reviewTransport turns connection errors and 5xx responses into errUnavailable.
// Upstream's clients of reviews offer no other place to tell them apart.
type reviewTransport struct{ next http.RoundTripper }

func newReviewTransport(next http.RoundTripper) http.RoundTripper { return reviewTransport{next} }

// RoundTrip implements http.RoundTripper.
func (a reviewTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := a.next.RoundTrip(req)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errUnavailable, err)
	case response.StatusCode >= http.StatusInternalServerError:
		_ = response.Body.Close()
		return nil, fmt.Errorf("%w: it returned %s", errUnavailable, response.Status)
	}
	return response, nil
}

// unavailableKey is the context key of a flag that marks a request. Upstream's filters
// lie between the reviews and the response, and drop the error.
type unavailableKey struct{}

// markUnavailable marks a request that the main cluster could not decide on.
func markUnavailable(ctx context.Context, err error) {
	if unavailable, ok := ctx.Value(unavailableKey{}).(*atomic.Bool); ok && errors.Is(err, errUnavailable) {
		unavailable.Store(true)
	}
}

func markingAuthenticator(inner authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := inner.AuthenticateRequest(req)
		markUnavailable(req.Context(), err)
		return response, ok, err
	})
}

func markingAuthorizer(inner authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
		decision, reason, err := inner.Authorize(ctx, attributes)
		markUnavailable(ctx, err)
		return decision, reason, err
	})
}

// WithUnavailableStatus returns 503 for requests that were rejected only because the main
// cluster is not responding. Upstream returns 401, on which clients discard valid
// credentials, or 500.
func WithUnavailableStatus(handler http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		unavailable := &atomic.Bool{}
		req = req.WithContext(context.WithValue(req.Context(), unavailableKey{}, unavailable))
		writer := &unavailableWriter{ResponseWriter: w, unavailable: unavailable, writeUnavailable: func() {
			responsewriters.ErrorNegotiated(apierrors.NewServiceUnavailable(errUnavailable.Error()), serializer, schema.GroupVersion{}, w, req)
		}}
		handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(writer), req)
	})
}

// unavailableWriter replaces the response of a marked request.
type unavailableWriter struct {
	http.ResponseWriter
	unavailable      *atomic.Bool
	writeUnavailable func()
	replaced         bool
}

var _ responsewriter.UserProvidedDecorator = &unavailableWriter{}

// Unwrap returns the decorated writer.
func (w *unavailableWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader replaces 401 and 500.
func (w *unavailableWriter) WriteHeader(code int) {
	if !w.unavailable.Load() || code != http.StatusUnauthorized && code != http.StatusInternalServerError {
		w.ResponseWriter.WriteHeader(code)
		return
	}
	w.replaced = true
	// These describe the body that is dropped.
	w.Header().Del("Content-Length")
	w.Header().Del("Content-Type")
	w.writeUnavailable()
}

// Write drops the body of a replaced response.
func (w *unavailableWriter) Write(p []byte) (int, error) {
	if w.replaced {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}
