// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rulesreview answers callers what they may do in a namespace, as
// `kubectl auth can-i --list` asks. Nothing is stored.
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
)

// REST is the endpoint. Only create is served.
type REST struct {
	rules authorizer.RuleResolver
}

var (
	_ rest.Creater              = &REST{}
	_ rest.Scoper               = &REST{}
	_ rest.SingularNameProvider = &REST{}
)

// NewREST answers by rules.
func NewREST(rules authorizer.RuleResolver) *REST { return &REST{rules: rules} }

// New returns an empty review.
func (r *REST) New() runtime.Object { return &authorizationv1.SelfSubjectRulesReview{} }

// Destroy has nothing to release.
func (r *REST) Destroy() {}

// NamespaceScoped is false: the namespace is part of the question.
func (r *REST) NamespaceScoped() bool { return false }

// GetSingularName is the name of one.
func (r *REST) GetSingularName() string { return "selfsubjectrulesreview" }

// Create lists what the caller may do. What some authorizers cannot tell is said in
// the answer, beside what others can.
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
	answer := &authorizationv1.SelfSubjectRulesReview{}
	answer.Status = authorizationv1.SubjectRulesReviewStatus{
		// Clients may rely on lists, so none is null.
		ResourceRules:    make([]authorizationv1.ResourceRule, 0, len(resources)),
		NonResourceRules: make([]authorizationv1.NonResourceRule, 0, len(paths)),
		Incomplete:       incomplete,
	}
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
