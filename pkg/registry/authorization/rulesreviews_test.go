// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"context"
	"errors"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// rules has the rights of one user in one namespace.
type rules struct{}

func (rules) RulesFor(_ context.Context, caller user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	if caller.GetName() != "alice" || namespace != "a" {
		return nil, nil, true, errors.New("cannot tell")
	}
	return []authorizer.ResourceRuleInfo{&authorizer.DefaultResourceRuleInfo{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"s"}}},
		[]authorizer.NonResourceRuleInfo{&authorizer.DefaultNonResourceRuleInfo{Verbs: []string{"get"}, NonResourceURLs: []string{"/version"}}}, false, nil
}

func TestRulesReviews(t *testing.T) {
	t.Parallel()
	r := endpoint("selfsubjectrulesreviews")
	alice := genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "alice"})
	ask := func(namespace string) *authorizationv1.SelfSubjectRulesReview {
		return &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	}
	for namespace, want := range map[string]authorizationv1.SubjectRulesReviewStatus{
		"a": {
			ResourceRules:    []authorizationv1.ResourceRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"s"}}},
			NonResourceRules: []authorizationv1.NonResourceRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/version"}}},
		},
		"b": {ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}, Incomplete: true, EvaluationError: "cannot tell"},
	} {
		got, err := r.Create(alice, ask(namespace), nil, nil)
		expect.NoError(t, err)
		expect.Equal(t, want, got.(*authorizationv1.SelfSubjectRulesReview).Status, "namespace %s", namespace)
	}
	if _, err := r.Create(alice, ask(""), nil, nil); !apierrors.IsBadRequest(err) {
		t.Errorf("no namespace: %v", err)
	}
	if _, err := r.Create(t.Context(), ask("a"), nil, nil); !apierrors.IsBadRequest(err) {
		t.Errorf("no caller: %v", err)
	}
}
