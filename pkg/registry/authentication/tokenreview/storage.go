// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tokenreview answers whose a token is. Nothing is stored.
package tokenreview

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
	"k8s.io/apiserver/pkg/registry/rest"
)

// REST is the endpoint. Only create is served.
type REST struct {
	logins    authenticator.Request
	audiences authenticator.Audiences
}

var (
	_ rest.Creater              = &REST{}
	_ rest.Scoper               = &REST{}
	_ rest.SingularNameProvider = &REST{}
)

// NewREST answers by logins. audiences are the names that annex has, which a review
// asks about when it names none.
func NewREST(logins authenticator.Request, audiences authenticator.Audiences) *REST {
	return &REST{logins: logins, audiences: audiences}
}

// New returns an empty review.
func (r *REST) New() runtime.Object { return &authenticationv1.TokenReview{} }

// Destroy has nothing to release.
func (r *REST) Destroy() {}

// NamespaceScoped is false.
func (r *REST) NamespaceScoped() bool { return false }

// GetSingularName is the name of one.
func (r *REST) GetSingularName() string { return "tokenreview" }

// Create answers a review.
func (r *REST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
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
	review.Status = r.answer(ctx, review.Spec)
	return review, nil
}

func (r *REST) answer(ctx context.Context, asked authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus {
	audiences := authenticator.Audiences(asked.Audiences)
	if len(audiences) == 0 {
		audiences = r.audiences
	}
	found, ok, err := r.logins.AuthenticateRequest(request(ctx, asked.Token, audiences))
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

// request shows the token and nothing else. It has no path, so that nobody is let in
// as anonymous.
func request(ctx context.Context, token string, audiences authenticator.Audiences) *http.Request {
	if len(audiences) > 0 {
		ctx = authenticator.WithAudiences(ctx, audiences)
	}
	shown := &http.Request{URL: &url.URL{}, Header: http.Header{"Authorization": {"Bearer " + token}}}
	return shown.WithContext(ctx)
}

// userInfo is a user as reviews have it.
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
