// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package selfsubjectreview

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

func TestCreate(t *testing.T) {
	t.Parallel()
	ctx := genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "ali", UID: "40", Groups: []string{"thieves"}, Extra: map[string][]string{"cave": {"open"}}})
	asked := &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "root"}}}
	answer, err := NewREST().Create(ctx, asked, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := authenticationv1.UserInfo{Username: "ali", UID: "40", Groups: []string{"thieves"}, Extra: map[string]authenticationv1.ExtraValue{"cave": {"open"}}}
	if diff := cmp.Diff(want, answer.(*authenticationv1.SelfSubjectReview).Status.UserInfo); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestCreateRefused(t *testing.T) {
	t.Parallel()
	ctx := genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "ali"})
	if _, err := NewREST().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, nil, nil); !apierrors.IsBadRequest(err) {
		t.Errorf("without a user: %v", err)
	}
	if _, err := NewREST().Create(ctx, &authenticationv1.TokenReview{}, nil, nil); !apierrors.IsBadRequest(err) {
		t.Errorf("another kind: %v", err)
	}
	refusal := errors.New("admission says no")
	refuse := func(context.Context, runtime.Object) error { return refusal }
	if _, err := NewREST().Create(ctx, &authenticationv1.SelfSubjectReview{}, refuse, nil); !errors.Is(err, refusal) {
		t.Errorf("refused by admission: %v", err)
	}
}
