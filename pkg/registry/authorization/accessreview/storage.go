// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package accessreview answers SubjectAccessReviews, LocalSubjectAccessReviews, for which
// access can be granted by namespace, and SelfSubjectAccessReviews.
package accessreview

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/apis/authorization/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// REST is the endpoint of one of the kinds.
type REST struct {
	typed.ReviewREST
	authorizer authorizer.Authorizer
	kind       string
}

var _ rest.Creater = &REST{}

// NewSubjectREST returns the endpoint for any user.
func NewSubjectREST(authorizer authorizer.Authorizer) *REST {
	return &REST{authorizer: authorizer, kind: "SubjectAccessReview", ReviewREST: typed.ReviewREST{
		Singular: "subjectaccessreview", NewFunc: func() runtime.Object { return &authorizationv1.SubjectAccessReview{} }}}
}

// NewLocalREST returns the endpoint for any user in the namespace of the request.
func NewLocalREST(authorizer authorizer.Authorizer) *REST {
	return &REST{authorizer: authorizer, kind: "LocalSubjectAccessReview", ReviewREST: typed.ReviewREST{
		Singular: "localsubjectaccessreview", Namespaced: true, NewFunc: func() runtime.Object { return &authorizationv1.LocalSubjectAccessReview{} }}}
}

// NewSelfREST returns the endpoint for the caller.
func NewSelfREST(authorizer authorizer.Authorizer) *REST {
	return &REST{authorizer: authorizer, kind: "SelfSubjectAccessReview", ReviewREST: typed.ReviewREST{
		Singular: "selfsubjectaccessreview", NewFunc: func() runtime.Object { return &authorizationv1.SelfSubjectAccessReview{} }}}
}

// Create implements rest.Creater.
func (r *REST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	request, err := parse(ctx, obj)
	if err != nil {
		return nil, err
	}
	if len(request.errs) > 0 {
		return nil, apierrors.NewInvalid(authorizationv1.SchemeGroupVersion.WithKind(r.kind).GroupKind(), "", request.errs)
	}
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	record := request.attributes()
	decision, reason, err := r.authorizer.Authorize(ctx, record)
	*request.status = authorizationv1.SubjectAccessReviewStatus{
		Allowed:         decision == authorizer.DecisionAllow,
		Denied:          decision == authorizer.DecisionDeny,
		Reason:          reason,
		EvaluationError: evaluationError(err, &record),
	}
	return obj, nil
}

// request is the common part of the three kinds.
type request struct {
	errs       field.ErrorList
	status     *authorizationv1.SubjectAccessReviewStatus
	attributes func() authorizer.AttributesRecord // valid without errs
}

// parse returns the request of a review of any of the kinds.
func parse(ctx context.Context, obj runtime.Object) (*request, error) {
	about := func(spec *authorizationv1.SubjectAccessReviewSpec) func() authorizer.AttributesRecord {
		return func() authorizer.AttributesRecord {
			return attributes(subject(spec), spec.ResourceAttributes, spec.NonResourceAttributes)
		}
	}
	switch review := obj.(type) {
	case *authorizationv1.SubjectAccessReview:
		return &request{validation.ValidateSubjectAccessReview(review), &review.Status, about(&review.Spec)}, nil
	case *authorizationv1.LocalSubjectAccessReview:
		if namespace := genericapirequest.NamespaceValue(ctx); review.Namespace != namespace {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("metadata.namespace %q is not that of the request, %q", review.Namespace, namespace))
		}
		return &request{validation.ValidateLocalSubjectAccessReview(review), &review.Status, about(&review.Spec)}, nil
	case *authorizationv1.SelfSubjectAccessReview:
		caller, ok := genericapirequest.UserFrom(ctx)
		if !ok {
			return nil, apierrors.NewBadRequest("the request has no user")
		}
		return &request{validation.ValidateSelfSubjectAccessReview(review), &review.Status, func() authorizer.AttributesRecord {
			return attributes(caller, review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
		}}, nil
	default:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("got a %T, not a review", obj))
	}
}
