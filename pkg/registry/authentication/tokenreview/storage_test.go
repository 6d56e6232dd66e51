// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package tokenreview

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/registry/rest"
)

// logins know the token "sesame" for the audience that they are asked about, "lie" for
// another one, and find fault with "expired". Who shows nothing is anonymous.
var logins = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
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

func TestCreate(t *testing.T) {
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
		"for another audience": {
			authenticationv1.TokenReviewSpec{Token: "lie"},
			authenticationv1.TokenReviewStatus{Error: `the token is not for ["annex"]`},
		},
		"with a fault": {
			authenticationv1.TokenReviewSpec{Token: "expired"},
			authenticationv1.TokenReviewStatus{Error: "it expired"},
		},
		"unknown": {authenticationv1.TokenReviewSpec{Token: "barley"}, authenticationv1.TokenReviewStatus{}},
		"blank":   {authenticationv1.TokenReviewSpec{Token: " "}, authenticationv1.TokenReviewStatus{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer, err := NewREST(logins, authenticator.Audiences{"annex"}).Create(t.Context(), &authenticationv1.TokenReview{
				Spec: test.spec,
				// What a caller says the answer is does not matter.
				Status: authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "root"}},
			}, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, answer.(*authenticationv1.TokenReview).Status); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCreateRefused(t *testing.T) {
	t.Parallel()
	endpoint := NewREST(logins, nil)
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "sesame"}}
	if _, err := endpoint.Create(t.Context(), &authenticationv1.TokenReview{}, nil, nil); !apierrors.IsBadRequest(err) {
		t.Errorf("without a token: %v", err)
	}
	if _, err := endpoint.Create(t.Context(), &authenticationv1.SelfSubjectReview{}, nil, nil); !apierrors.IsBadRequest(err) {
		t.Errorf("another kind: %v", err)
	}
	refusal := errors.New("admission says no")
	refuse := func(context.Context, runtime.Object) error { return refusal }
	if _, err := endpoint.Create(t.Context(), review, refuse, nil); !errors.Is(err, refusal) {
		t.Errorf("refused by admission: %v", err)
	}
}
