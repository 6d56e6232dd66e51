// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rulesreview answers SelfSubjectRulesReviews, such as `kubectl auth can-i --list`.
package rulesreview

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/registry/typed"
)

// REST is the endpoint.
type REST struct {
	typed.ReviewREST
	rules authorizer.RuleResolver
}

var _ rest.Creater = &REST{}

// NewREST returns the endpoint.
func NewREST(rules authorizer.RuleResolver) *REST {
	return &REST{rules: rules, ReviewREST: typed.ReviewREST{
		Singular: "selfsubjectrulesreview", NewFunc: func() runtime.Object { return &authorizationv1.SelfSubjectRulesReview{} }}}
}

// Create implements rest.Creater. The rules of some authorizers are returned even if
// others fail.
func (r *REST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	review, ok := obj.(*authorizationv1.SelfSubjectRulesReview)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("got a %T, not a SelfSubjectRulesReview", obj))
	}
	caller, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("the request has no user")
	}
	if review.Spec.Namespace == "" {
		return nil, apierrors.NewBadRequest("no namespace on request")
	}
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	resources, paths, incomplete, err := r.rules.RulesFor(ctx, caller, review.Spec.Namespace)
	answer := &authorizationv1.SelfSubjectRulesReview{Status: authorizationv1.SubjectRulesReviewStatus{
		// Clients may expect lists, so none is null.
		ResourceRules:    make([]authorizationv1.ResourceRule, 0, len(resources)),
		NonResourceRules: make([]authorizationv1.NonResourceRule, 0, len(paths)),
		Incomplete:       incomplete,
	}}
	for _, rule := range resources {
		answer.Status.ResourceRules = append(answer.Status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: rule.GetVerbs(), APIGroups: rule.GetAPIGroups(), Resources: rule.GetResources(), ResourceNames: rule.GetResourceNames(),
		})
	}
	for _, rule := range paths {
		answer.Status.NonResourceRules = append(answer.Status.NonResourceRules, authorizationv1.NonResourceRule{
			Verbs: rule.GetVerbs(), NonResourceURLs: rule.GetNonResourceURLs(),
		})
	}
	if err != nil {
		answer.Status.EvaluationError = err.Error()
	}
	return answer, nil
}
