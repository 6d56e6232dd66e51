// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// errAway says that a question was not answered, as opposed to answered with no.
var errAway = errors.New("the main cluster, which says who may log in and act, does not answer")

// awayFrom marks errors of a main cluster that did not get as far as an answer.
func awayFrom(err error) error {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError {
		return err
	}
	return fmt.Errorf("%w: %w", errAway, err)
}

// tokenReviews and accessReviews tell the two apart where the answer comes in.
type (
	tokenReviews struct {
		authenticationclient.AuthenticationV1Interface
	}
	tokenReview struct {
		authenticationclient.TokenReviewInterface
	}
	accessReviews struct {
		authorizationclient.AuthorizationV1Interface
	}
	accessReview struct {
		authorizationclient.SubjectAccessReviewInterface
	}
)

// TokenReviews returns a client whose errors are marked.
func (c tokenReviews) TokenReviews() authenticationclient.TokenReviewInterface {
	return tokenReview{c.AuthenticationV1Interface.TokenReviews()}
}

// Create asks whose a token is.
func (c tokenReview) Create(ctx context.Context, review *authenticationv1.TokenReview, opts metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	answer, err := c.TokenReviewInterface.Create(ctx, review, opts)
	return answer, awayFrom(err)
}

// SubjectAccessReviews returns a client whose errors are marked.
func (c accessReviews) SubjectAccessReviews() authorizationclient.SubjectAccessReviewInterface {
	return accessReview{c.AuthorizationV1Interface.SubjectAccessReviews()}
}

// Create asks who may act.
func (c accessReview) Create(ctx context.Context, review *authorizationv1.SubjectAccessReview, opts metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	answer, err := c.SubjectAccessReviewInterface.Create(ctx, review, opts)
	return answer, awayFrom(err)
}

type awayKey struct{}

// unanswered holds, for one request, why the main cluster's answer is missing.
type unanswered struct{ why atomic.Pointer[error] }

func note(ctx context.Context, err error) {
	if slot, ok := ctx.Value(awayKey{}).(*unanswered); ok && errors.Is(err, errAway) {
		slot.why.Store(&err)
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
		slot := &unanswered{}
		req = req.WithContext(context.WithValue(req.Context(), awayKey{}, slot))
		refusing := &refusalWriter{ResponseWriter: w, slot: slot, refuse: func(why error) {
			responsewriters.ErrorNegotiated(apierrors.NewServiceUnavailable(why.Error()), serializer, schema.GroupVersion{}, w, req)
		}}
		handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(refusing), req)
	})
}

// refusalWriter puts an honest refusal in place of the one it is given.
type refusalWriter struct {
	http.ResponseWriter
	slot    *unanswered
	refuse  func(why error)
	refused bool
}

var _ responsewriter.UserProvidedDecorator = &refusalWriter{}

// Unwrap returns the writer that is decorated.
func (w *refusalWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader replaces the status of a refusal for want of an answer.
func (w *refusalWriter) WriteHeader(code int) {
	why := w.slot.why.Load()
	if why == nil || code != http.StatusUnauthorized && code != http.StatusInternalServerError {
		w.ResponseWriter.WriteHeader(code)
		return
	}
	w.refused = true
	// These describe the body that is dropped.
	w.Header().Del("Content-Length")
	w.Header().Del("Content-Type")
	w.refuse(*why)
}

// Write drops the body of a refusal that was replaced.
func (w *refusalWriter) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}
