// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// allow allows alice, denies bob, and abstains with an error else.
var allow = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	labels, _ := a.GetLabelSelector()
	fields, _ := a.GetFieldSelector()
	reason := fmt.Sprintf("%s %s %s %s/%s/%s/%s/%s %s <%s> %v", a.GetUser().GetName(), a.GetUser().GetExtra()["x"], a.GetVerb(),
		a.GetAPIGroup(), a.GetAPIVersion(), a.GetNamespace(), a.GetResource(), a.GetName(), a.GetPath(), labels, fields)
	switch a.GetUser().GetName() {
	case "alice":
		return authorizer.DecisionAllow, reason, nil
	case "bob":
		return authorizer.DecisionDeny, reason, nil
	default:
		return authorizer.DecisionNoOpinion, reason, errors.New("unknown user")
	}
})

func endpoint(name string) rest.Creater {
	return NewGroup(allow, rules{}).VersionedResourcesStorageMap["v1"][name].(rest.Creater)
}

var subjects, locals, selves = endpoint("subjectaccessreviews"), endpoint("localsubjectaccessreviews"), endpoint("selfsubjectaccessreviews")

func answer(t *testing.T, r rest.Creater, obj runtime.Object) (authorizationv1.SubjectAccessReviewStatus, error) {
	t.Helper()
	ctx := genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "alice"})
	ctx = genericapirequest.WithNamespace(ctx, "a")
	answered, err := r.Create(ctx, obj, nil, nil)
	switch review := answered.(type) {
	case *authorizationv1.SubjectAccessReview:
		return review.Status, err
	case *authorizationv1.LocalSubjectAccessReview:
		return review.Status, err
	case *authorizationv1.SelfSubjectAccessReview:
		return review.Status, err
	default:
		return authorizationv1.SubjectAccessReviewStatus{}, err
	}
}

func TestAccessReviews(t *testing.T) {
	t.Parallel()
	secret := &authorizationv1.ResourceAttributes{Namespace: "a", Verb: "get", Resource: "secrets", Name: "s"}
	path := &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}
	about := func(name string) authorizationv1.SubjectAccessReviewSpec {
		return authorizationv1.SubjectAccessReviewSpec{User: name, Extra: map[string]authorizationv1.ExtraValue{"x": {"y"}}, ResourceAttributes: secret}
	}
	const what = " get /*/a/secrets/s  <> []"
	tests := map[string]struct {
		endpoint rest.Creater
		review   runtime.Object
		want     authorizationv1.SubjectAccessReviewStatus
	}{
		"allowed":       {subjects, &authorizationv1.SubjectAccessReview{Spec: about("alice")}, authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "alice [y]" + what}},
		"denied":        {subjects, &authorizationv1.SubjectAccessReview{Spec: about("bob")}, authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "bob [y]" + what}},
		"neither":       {subjects, &authorizationv1.SubjectAccessReview{Spec: about("carol")}, authorizationv1.SubjectAccessReviewStatus{Reason: "carol [y]" + what, EvaluationError: "unknown user"}},
		"in namespace":  {locals, &authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "a"}, Spec: about("bob")}, authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "bob [y]" + what}},
		"myself":        {selves, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: secret}}, authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "alice []" + what}},
		"myself, paths": {selves, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: path}}, authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "alice [] get //// /metrics <> []"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := answer(t, test.endpoint, test.review)
			expect.NoError(t, err)
			expect.Equal(t, test.want, got, "answer")
		})
	}
}

func TestAccessReviewsRefused(t *testing.T) {
	t.Parallel()
	if _, err := answer(t, subjects, &authorizationv1.SubjectAccessReview{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `SubjectAccessReview.authorization.k8s.io "" is invalid`) {
		t.Errorf("an empty review: %v", err)
	}
	if _, err := answer(t, subjects, &metav1.Status{}); !apierrors.IsBadRequest(err) {
		t.Errorf("another kind: %v", err)
	}
	elsewhere := &authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "b"}}
	if _, err := answer(t, locals, elsewhere); !apierrors.IsBadRequest(err) {
		t.Errorf("another namespace: %v", err)
	}
	if _, err := selves.Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{}, nil, nil); !apierrors.IsBadRequest(err) {
		t.Errorf("without a caller: %v", err)
	}
	refuse := func(context.Context, runtime.Object) error { return errors.New("not now") }
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "alice", NonResourceAttributes: &authorizationv1.NonResourceAttributes{}}}
	if _, err := subjects.Create(t.Context(), review, refuse, nil); err == nil || review.Status.Allowed {
		t.Errorf("admission did not run: %v", err)
	}
}

func TestSelectors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		labels          *authorizationv1.LabelSelectorAttributes
		fields          *authorizationv1.FieldSelectorAttributes
		reason, message string
	}{
		"none": {reason: " <> []"},
		"raw": {
			labels: &authorizationv1.LabelSelectorAttributes{RawSelector: "a in (b,c),!d"},
			fields: &authorizationv1.FieldSelectorAttributes{RawSelector: "spec.x=y"},
			reason: "<a in (b,c), !d> [{= spec.x y}]",
		},
		"requirements": {
			labels: &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "NotIn", Values: []string{"b"}}, {Key: "c", Operator: "Exists"}}},
			fields: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{{Key: "x", Operator: "NotIn", Values: []string{"y"}}, {Key: "z", Operator: "In", Values: []string{"1"}}}},
			reason: "<a notin (b), c> [{!= x y} {= z 1}]",
		},
		"raw, broken": {
			labels: &authorizationv1.LabelSelectorAttributes{RawSelector: "a in ("},
			fields: &authorizationv1.FieldSelectorAttributes{RawSelector: "a"},
			reason: " <> []", message: "spec.resourceAttributes.fieldSelector ignored: ",
		},
		"partly known": {
			labels: &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like", Values: []string{"b"}}, {Key: "c", Operator: "Exists"}}},
			fields: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{{Key: "x", Operator: "Exists"}, {Key: "z", Operator: "In", Values: []string{"1"}}}},
			reason: "<c> [{= z 1}]", message: "labelSelector partially ignored: ",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := answer(t, selves, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets", LabelSelector: test.labels, FieldSelector: test.fields},
			}})
			expect.NoError(t, err)
			if !strings.HasSuffix(got.Reason, test.reason) || !strings.Contains(got.EvaluationError, test.message) || (got.EvaluationError == "") != (test.message == "") {
				t.Errorf("reason %q, error %q; want %q, %q", got.Reason, got.EvaluationError, test.reason, test.message)
			}
		})
	}
}
