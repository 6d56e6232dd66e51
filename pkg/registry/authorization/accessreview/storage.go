// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package accessreview answers whether somebody may do something: anybody
// (SubjectAccessReview), anybody in one namespace (LocalSubjectAccessReview, so that
// the right to ask can be given for it alone), or the caller
// (SelfSubjectAccessReview). Nothing is stored.
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
)

// REST is the endpoint of one of the kinds. Only create is served.
type REST struct {
	rights     authorizer.Authorizer
	kind       string
	singular   string
	namespaced bool
	newReview  func() runtime.Object
}

var (
	_ rest.Creater              = &REST{}
	_ rest.Scoper               = &REST{}
	_ rest.SingularNameProvider = &REST{}
)

// NewSubjectREST answers about anybody.
func NewSubjectREST(rights authorizer.Authorizer) *REST {
	return &REST{rights: rights, kind: "SubjectAccessReview", singular: "subjectaccessreview",
		newReview: func() runtime.Object { return &authorizationv1.SubjectAccessReview{} }}
}

// NewLocalREST answers about anybody in the namespace of the request.
func NewLocalREST(rights authorizer.Authorizer) *REST {
	return &REST{rights: rights, kind: "LocalSubjectAccessReview", singular: "localsubjectaccessreview", namespaced: true,
		newReview: func() runtime.Object { return &authorizationv1.LocalSubjectAccessReview{} }}
}

// NewSelfREST answers about the caller.
func NewSelfREST(rights authorizer.Authorizer) *REST {
	return &REST{rights: rights, kind: "SelfSubjectAccessReview", singular: "selfsubjectaccessreview",
		newReview: func() runtime.Object { return &authorizationv1.SelfSubjectAccessReview{} }}
}

// New returns an empty review.
func (r *REST) New() runtime.Object { return r.newReview() }

// Destroy has nothing to release.
func (r *REST) Destroy() {}

// NamespaceScoped is true for the local kind.
func (r *REST) NamespaceScoped() bool { return r.namespaced }

// GetSingularName is the name of one.
func (r *REST) GetSingularName() string { return r.singular }

// Create answers the question that obj asks.
func (r *REST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	question, err := read(ctx, obj)
	if err != nil {
		return nil, err
	}
	if len(question.errs) > 0 {
		return nil, apierrors.NewInvalid(authorizationv1.SchemeGroupVersion.WithKind(r.kind).GroupKind(), "", question.errs)
	}
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	record := question.attributes()
	decision, reason, err := r.rights.Authorize(ctx, record)
	*question.status = authorizationv1.SubjectAccessReviewStatus{
		Allowed:         decision == authorizer.DecisionAllow,
		Denied:          decision == authorizer.DecisionDeny,
		Reason:          reason,
		EvaluationError: evaluationError(err, &record),
	}
	return obj, nil
}

// question is what the three kinds have in common.
type question struct {
	errs       field.ErrorList
	status     *authorizationv1.SubjectAccessReviewStatus
	attributes func() authorizer.AttributesRecord // of a question without errs
}

// read finds the question in a review of any of the kinds.
func read(ctx context.Context, obj runtime.Object) (*question, error) {
	about := func(spec *authorizationv1.SubjectAccessReviewSpec) func() authorizer.AttributesRecord {
		return func() authorizer.AttributesRecord {
			return attributes(subject(spec), spec.ResourceAttributes, spec.NonResourceAttributes)
		}
	}
	switch review := obj.(type) {
	case *authorizationv1.SubjectAccessReview:
		return &question{validation.ValidateSubjectAccessReview(review), &review.Status, about(&review.Spec)}, nil
	case *authorizationv1.LocalSubjectAccessReview:
		if namespace := genericapirequest.NamespaceValue(ctx); review.Namespace != namespace {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("metadata.namespace %q is not that of the request, %q", review.Namespace, namespace))
		}
		return &question{validation.ValidateLocalSubjectAccessReview(review), &review.Status, about(&review.Spec)}, nil
	case *authorizationv1.SelfSubjectAccessReview:
		caller, ok := genericapirequest.UserFrom(ctx)
		if !ok {
			return nil, apierrors.NewBadRequest("the request has no user")
		}
		return &question{validation.ValidateSelfSubjectAccessReview(review), &review.Status, func() authorizer.AttributesRecord {
			return attributes(caller, review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
		}}, nil
	default:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("got a %T, not a review", obj))
	}
}
