// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authorization is the REST storage of authorization.k8s.io.
package authorization

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/apis/authorization/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// NewGroup creates the endpoints of authorization.k8s.io. The authorizer answers access reviews, rules
// list the rights of a user.
func NewGroup(authorizer authorizer.Authorizer, rules authorizer.RuleResolver) genericapiserver.APIGroupInfo {
	reviews := accessReviews{authorizer}
	return typed.Endpoints{
		"subjectaccessreviews": newReview("SubjectAccessReview", false, reviews.ofSubject),
		// Access to these can be granted by namespace.
		"localsubjectaccessreviews": newReview("LocalSubjectAccessReview", true, reviews.ofSubjectInNamespace),
		"selfsubjectaccessreviews":  newReview("SelfSubjectAccessReview", false, reviews.ofCaller),
		"selfsubjectrulesreviews":   newReview("SelfSubjectRulesReview", false, rulesReviews{rules}.ofCaller),
	}.Group(authorizationv1.SchemeGroupVersion)
}

func newReview[T runtime.Object](kind string, namespaced bool, check func(context.Context, T) (func() T, error)) typed.ReviewREST[T] {
	return typed.ReviewREST[T]{Kind: authorizationv1.SchemeGroupVersion.WithKind(kind), Namespaced: namespaced, Check: check}
}

// accessReviews answers the three kinds of access reviews.
type accessReviews struct{ authorizer authorizer.Authorizer }

func (r accessReviews) ofSubject(ctx context.Context, review *authorizationv1.SubjectAccessReview) (func() *authorizationv1.SubjectAccessReview, error) {
	if err := invalid("SubjectAccessReview", validation.ValidateSubjectAccessReview(review)); err != nil {
		return nil, err
	}
	return func() *authorizationv1.SubjectAccessReview {
		review.Status = r.authorize(ctx, attributes(subject(&review.Spec), review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes))
		return review
	}, nil
}

func (r accessReviews) ofSubjectInNamespace(ctx context.Context, review *authorizationv1.LocalSubjectAccessReview) (func() *authorizationv1.LocalSubjectAccessReview, error) {
	if namespace := genericapirequest.NamespaceValue(ctx); review.Namespace != namespace {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("metadata.namespace %q differs from the namespace of the request, %q", review.Namespace, namespace))
	}
	if err := invalid("LocalSubjectAccessReview", validation.ValidateLocalSubjectAccessReview(review)); err != nil {
		return nil, err
	}
	return func() *authorizationv1.LocalSubjectAccessReview {
		review.Status = r.authorize(ctx, attributes(subject(&review.Spec), review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes))
		return review
	}, nil
}

func (r accessReviews) ofCaller(ctx context.Context, review *authorizationv1.SelfSubjectAccessReview) (func() *authorizationv1.SelfSubjectAccessReview, error) {
	caller, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("the request has no user")
	}
	if err := invalid("SelfSubjectAccessReview", validation.ValidateSelfSubjectAccessReview(review)); err != nil {
		return nil, err
	}
	return func() *authorizationv1.SelfSubjectAccessReview {
		review.Status = r.authorize(ctx, attributes(caller, review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes))
		return review
	}, nil
}

func invalid(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(authorizationv1.SchemeGroupVersion.WithKind(kind).GroupKind(), "", errs)
}

func (r accessReviews) authorize(ctx context.Context, record authorizer.AttributesRecord) authorizationv1.SubjectAccessReviewStatus {
	decision, reason, err := r.authorizer.Authorize(ctx, record)
	return authorizationv1.SubjectAccessReviewStatus{
		Allowed:         decision == authorizer.DecisionAllow,
		Denied:          decision == authorizer.DecisionDeny,
		Reason:          reason,
		EvaluationError: evaluationError(err, &record),
	}
}
