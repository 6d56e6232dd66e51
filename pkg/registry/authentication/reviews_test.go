// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// tokens authenticates "sesame" for the requested audience and "lie" for another one, and
// fails for "expired". Requests without a token are anonymous.
var tokens = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
	token, shown := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	audiences, _ := authenticator.AudiencesFrom(req.Context())
	ali := &user.DefaultInfo{Name: "ali", UID: "40", Groups: []string{"thieves"}, Extra: map[string][]string{"cave": {"open"}}}
	switch {
	case !shown && strings.HasPrefix(req.URL.Path, "/"):
		return &authenticator.Response{User: &user.DefaultInfo{Name: user.Anonymous}}, true, nil
	case token == "sesame":
		return &authenticator.Response{User: ali, Audiences: audiences}, true, nil
	case token == "lie":
		return &authenticator.Response{User: ali, Audiences: authenticator.Audiences{"elsewhere"}}, true, nil
	case token == "expired":
		return nil, false, errors.New("it expired")
	}
	return nil, false, nil
})

func endpoint(name string, audiences authenticator.Audiences) rest.Creater {
	return NewGroup(tokens, audiences).VersionedResourcesStorageMap["v1"][name].(rest.Creater)
}

func TestTokenReview(t *testing.T) {
	t.Parallel()
	ali := authenticationv1.UserInfo{Username: "ali", UID: "40", Groups: []string{"thieves"}, Extra: map[string]authenticationv1.ExtraValue{"cave": {"open"}}}
	for name, test := range map[string]struct {
		spec authenticationv1.TokenReviewSpec
		want authenticationv1.TokenReviewStatus
	}{
		"known": {
			authenticationv1.TokenReviewSpec{Token: "sesame"},
			authenticationv1.TokenReviewStatus{Authenticated: true, User: ali, Audiences: []string{"annex"}},
		},
		"known, for an audience": {
			authenticationv1.TokenReviewSpec{Token: "sesame", Audiences: []string{"vault"}},
			authenticationv1.TokenReviewStatus{Authenticated: true, User: ali, Audiences: []string{"vault"}},
		},
		"for a different audience": {
			authenticationv1.TokenReviewSpec{Token: "lie"},
			authenticationv1.TokenReviewStatus{Error: `the token is not for ["annex"]`},
		},
		"expired": {
			authenticationv1.TokenReviewSpec{Token: "expired"},
			authenticationv1.TokenReviewStatus{Error: "it expired"},
		},
		"unknown": {authenticationv1.TokenReviewSpec{Token: "barley"}, authenticationv1.TokenReviewStatus{}},
		"blank":   {authenticationv1.TokenReviewSpec{Token: " "}, authenticationv1.TokenReviewStatus{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer, err := endpoint("tokenreviews", authenticator.Audiences{"annex"}).Create(t.Context(), &authenticationv1.TokenReview{
				Spec: test.spec,
				// The status of the request is ignored.
				Status: authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "root"}},
			}, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
			expect.NoError(t, err)
			expect.Equal(t, test.want, answer.(*authenticationv1.TokenReview).Status, "status")
		})
	}
}

func TestTokenReviewRefused(t *testing.T) {
	t.Parallel()
	tokenReviews := endpoint("tokenreviews", nil)
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "sesame"}}
	if _, err := tokenReviews.Create(t.Context(), &authenticationv1.TokenReview{}, nil, nil); !apierrors.IsBadRequest(err) {
		t.Errorf("without a token: %v", err)
	}
	if _, err := tokenReviews.Create(t.Context(), &authenticationv1.SelfSubjectReview{}, nil, nil); !apierrors.IsBadRequest(err) {
		t.Errorf("wrong kind: %v", err)
	}
	refusal := errors.New("refused by admission")
	refuse := func(context.Context, runtime.Object) error { return refusal }
	if _, err := tokenReviews.Create(t.Context(), review, refuse, nil); !errors.Is(err, refusal) {
		t.Errorf("refused by admission: %v", err)
	}
}

func TestSelfSubjectReview(t *testing.T) {
	t.Parallel()
	ctx := genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "ali", UID: "40", Groups: []string{"thieves"}, Extra: map[string][]string{"cave": {"open"}}})
	asked := &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "root"}}}
	answer, err := endpoint("selfsubjectreviews", nil).Create(ctx, asked, nil, nil)
	expect.NoError(t, err)
	want := authenticationv1.UserInfo{Username: "ali", UID: "40", Groups: []string{"thieves"}, Extra: map[string]authenticationv1.ExtraValue{"cave": {"open"}}}
	expect.Equal(t, want, answer.(*authenticationv1.SelfSubjectReview).Status.UserInfo, "user")
}

func TestSelfSubjectReviewRefused(t *testing.T) {
	t.Parallel()
	ctx := genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "ali"})
	if _, err := endpoint("selfsubjectreviews", nil).Create(t.Context(), &authenticationv1.SelfSubjectReview{}, nil, nil); !apierrors.IsBadRequest(err) {
		t.Errorf("without a user: %v", err)
	}
	if _, err := endpoint("selfsubjectreviews", nil).Create(ctx, &authenticationv1.TokenReview{}, nil, nil); !apierrors.IsBadRequest(err) {
		t.Errorf("wrong kind: %v", err)
	}
	refusal := errors.New("refused by admission")
	refuse := func(context.Context, runtime.Object) error { return refusal }
	if _, err := endpoint("selfsubjectreviews", nil).Create(ctx, &authenticationv1.SelfSubjectReview{}, refuse, nil); !errors.Is(err, refusal) {
		t.Errorf("refused by admission: %v", err)
	}
}
