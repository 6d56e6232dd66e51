// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// rulesReviews answers SelfSubjectRulesReviews, such as `kubectl auth can-i --list`.
type rulesReviews struct{ rules authorizer.RuleResolver }

func (r rulesReviews) ofCaller(ctx context.Context, review *authorizationv1.SelfSubjectRulesReview) (func() *authorizationv1.SelfSubjectRulesReview, error) {
	caller, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("the request has no user")
	}
	if review.Spec.Namespace == "" {
		return nil, apierrors.NewBadRequest("no namespace on request")
	}
	return func() *authorizationv1.SelfSubjectRulesReview {
		return &authorizationv1.SelfSubjectRulesReview{Status: r.list(ctx, caller, review.Spec.Namespace)}
	}, nil
}

// list returns the rules of some authorizers even if others fail.
func (r rulesReviews) list(ctx context.Context, caller user.Info, namespace string) authorizationv1.SubjectRulesReviewStatus {
	resources, paths, incomplete, err := r.rules.RulesFor(ctx, caller, namespace)
	status := authorizationv1.SubjectRulesReviewStatus{
		// Clients may expect lists, so none is null.
		ResourceRules:    make([]authorizationv1.ResourceRule, 0, len(resources)),
		NonResourceRules: make([]authorizationv1.NonResourceRule, 0, len(paths)),
		Incomplete:       incomplete,
	}
	for _, rule := range resources {
		status.ResourceRules = append(status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: rule.GetVerbs(), APIGroups: rule.GetAPIGroups(), Resources: rule.GetResources(), ResourceNames: rule.GetResourceNames(),
		})
	}
	for _, rule := range paths {
		status.NonResourceRules = append(status.NonResourceRules, authorizationv1.NonResourceRule{
			Verbs: rule.GetVerbs(), NonResourceURLs: rule.GetNonResourceURLs(),
		})
	}
	if err != nil {
		status.EvaluationError = err.Error()
	}
	return status
}
