// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authentication is the REST storage of authentication.k8s.io.
package authentication

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/registry/typed"
)

// NewGroup creates the endpoints of authentication.k8s.io. The authenticator authenticates the tokens
// of TokenReviews, which are for these audiences by default.
func NewGroup(authenticator authenticator.Request, audiences authenticator.Audiences) genericapiserver.APIGroupInfo {
	return typed.Endpoints{
		"tokenreviews": typed.ReviewREST[*authenticationv1.TokenReview]{
			Kind: authenticationv1.SchemeGroupVersion.WithKind("TokenReview"), Check: reviewer{authenticator, audiences}.reviewToken,
		},
		"selfsubjectreviews": typed.ReviewREST[*authenticationv1.SelfSubjectReview]{
			Kind: authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), Check: reviewCaller,
		},
	}.Group(authenticationv1.SchemeGroupVersion)
}

// reviewer authenticates the tokens of TokenReviews.
type reviewer struct {
	authenticator authenticator.Request
	// audiences are for reviews without any.
	audiences authenticator.Audiences
}

func (r reviewer) reviewToken(ctx context.Context, review *authenticationv1.TokenReview) (func() *authenticationv1.TokenReview, error) {
	if review.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	return func() *authenticationv1.TokenReview {
		review.Status = r.review(ctx, review.Spec)
		return review
	}, nil
}

func (r reviewer) review(ctx context.Context, asked authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus {
	audiences := authenticator.Audiences(asked.Audiences)
	if len(audiences) == 0 {
		audiences = r.audiences
	}
	found, ok, err := r.authenticator.AuthenticateRequest(request(ctx, asked.Token, audiences))
	switch {
	case err != nil:
		return authenticationv1.TokenReviewStatus{Error: err.Error()}
	case !ok || found == nil || found.User == nil:
		return authenticationv1.TokenReviewStatus{}
	case len(audiences) > 0 && len(audiences.Intersect(found.Audiences)) == 0:
		return authenticationv1.TokenReviewStatus{Error: fmt.Sprintf("the token is not for %q", []string(audiences))}
	}
	return authenticationv1.TokenReviewStatus{Authenticated: true, User: userInfo(found.User), Audiences: found.Audiences}
}

// request has only the token, and no path, so that anonymous requests are not authenticated.
func request(ctx context.Context, token string, audiences authenticator.Audiences) *http.Request {
	if len(audiences) > 0 {
		ctx = authenticator.WithAudiences(ctx, audiences)
	}
	req := &http.Request{URL: &url.URL{}, Header: http.Header{"Authorization": {"Bearer " + token}}}
	return req.WithContext(ctx)
}

// userInfo converts a user to the user of a review.
func userInfo(of user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: of.GetName(), UID: of.GetUID(), Groups: slices.Clone(of.GetGroups())}
	for key, values := range of.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = slices.Clone(values)
	}
	return info
}

// reviewCaller answers with the caller, after impersonation.
func reviewCaller(ctx context.Context, _ *authenticationv1.SelfSubjectReview) (func() *authenticationv1.SelfSubjectReview, error) {
	caller, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("the request has no user")
	}
	return func() *authenticationv1.SelfSubjectReview {
		return &authenticationv1.SelfSubjectReview{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Now()},
			Status:     authenticationv1.SelfSubjectReviewStatus{UserInfo: userInfo(caller)},
		}
	}, nil
}
