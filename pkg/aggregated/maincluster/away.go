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

// errAway says that a question was not answered, as opposed to answered with no. It
// is all that callers learn, who may be strangers; the cause is logged.
var errAway = errors.New("the main cluster, which decides who may log in and act, does not answer")

// answering marks, where an answer comes in, what is none: upstream's clients of
// reviews keep no other place for it.
type answering struct{ next http.RoundTripper }

func onlyAnswers(next http.RoundTripper) http.RoundTripper { return answering{next} }

// RoundTrip fails for a main cluster that is not there or cannot answer.
func (a answering) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := a.next.RoundTrip(req)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errAway, err)
	case response.StatusCode >= http.StatusInternalServerError:
		_ = response.Body.Close()
		return nil, fmt.Errorf("%w: it says %s", errAway, response.Status)
	}
	return response, nil
}

type awayKey struct{}

// note marks a request for which the main cluster's answer is missing.
func note(ctx context.Context, err error) {
	if away, ok := ctx.Value(awayKey{}).(*atomic.Bool); ok && errors.Is(err, errAway) {
		away.Store(true)
	}
}

// noteLogins and noteRights remember for the response what upstream's filters
// keep to themselves.
func noteLogins(inner authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := inner.AuthenticateRequest(req)
		note(req.Context(), err)
		return response, ok, err
	})
}

func noteRights(inner authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
		decision, reason, err := inner.Authorize(ctx, attributes)
		note(ctx, err)
		return decision, reason, err
	})
}

// WithHonestRefusals answers 503 where a request was refused only because the
// main cluster does not answer. Upstream says 401 then, which has clients throw
// good credentials away, or 500.
func WithHonestRefusals(handler http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		away := &atomic.Bool{}
		req = req.WithContext(context.WithValue(req.Context(), awayKey{}, away))
		refusing := &refusalWriter{ResponseWriter: w, away: away, refuse: func() {
			responsewriters.ErrorNegotiated(apierrors.NewServiceUnavailable(errAway.Error()), serializer, schema.GroupVersion{}, w, req)
		}}
		handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(refusing), req)
	})
}

// refusalWriter puts an honest refusal in place of the one it is given.
type refusalWriter struct {
	http.ResponseWriter
	away    *atomic.Bool
	refuse  func()
	refused bool
}

var _ responsewriter.UserProvidedDecorator = &refusalWriter{}

// Unwrap returns the writer that is decorated.
func (w *refusalWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader replaces the status of a refusal for want of an answer.
func (w *refusalWriter) WriteHeader(code int) {
	if !w.away.Load() || code != http.StatusUnauthorized && code != http.StatusInternalServerError {
		w.ResponseWriter.WriteHeader(code)
		return
	}
	w.refused = true
	// These describe the body that is dropped.
	w.Header().Del("Content-Length")
	w.Header().Del("Content-Type")
	w.refuse()
}

// Write drops the body of a refusal that was replaced.
func (w *refusalWriter) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}
