// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/registry/typed"
)

// tokenReviewREST authenticates tokens.
type tokenReviewREST struct {
	typed.ReviewREST
	authenticator authenticator.Request
	// audiences are those of a review without any.
	audiences authenticator.Audiences
}

var _ rest.Creater = &tokenReviewREST{}

func newTokenReviewREST(authenticator authenticator.Request, audiences authenticator.Audiences) *tokenReviewREST {
	return &tokenReviewREST{
		ReviewREST:    typed.ReviewREST{Singular: "tokenreview", NewFunc: func() runtime.Object { return &authenticationv1.TokenReview{} }},
		authenticator: authenticator, audiences: audiences,
	}
}

// Create implements rest.Creater.
func (r *tokenReviewREST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	review, ok := obj.(*authenticationv1.TokenReview)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("got a %T, not a TokenReview", obj))
	}
	if review.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	if validate != nil {
		if err := validate(ctx, review.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	review.Status = r.review(ctx, review.Spec)
	return review, nil
}

func (r *tokenReviewREST) review(ctx context.Context, asked authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus {
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

// userInfo converts a user to that of a review.
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

// selfSubjectReviewREST returns the caller, after impersonation.
type selfSubjectReviewREST struct{ typed.ReviewREST }

var _ rest.Creater = selfSubjectReviewREST{}

func newSelfSubjectReviewREST() selfSubjectReviewREST {
	return selfSubjectReviewREST{typed.ReviewREST{Singular: "selfsubjectreview", NewFunc: func() runtime.Object { return &authenticationv1.SelfSubjectReview{} }}}
}

// Create implements rest.Creater.
func (selfSubjectReviewREST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	if _, ok := obj.(*authenticationv1.SelfSubjectReview); !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("got a %T, not a SelfSubjectReview", obj))
	}
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	caller, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("the request has no user")
	}
	return &authenticationv1.SelfSubjectReview{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Now()},
		Status:     authenticationv1.SelfSubjectReviewStatus{UserInfo: userInfo(caller)},
	}, nil
}
