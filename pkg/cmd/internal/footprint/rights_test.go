// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package footprint

import (
	"errors"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestListRights(t *testing.T) {
	t.Parallel()
	for want, rules := range map[string][]rbacv1.PolicyRule{
		"": nil,
		"get/list a/status.x n, get b/status.x n, get c/status.x n, get d/status.x n, and the like for 2 more": {
			{APIGroups: []string{"x"}, Resources: []string{"a/status"}, ResourceNames: []string{"n"}, Verbs: []string{"get", "list"}},
			{APIGroups: []string{"x"}, Resources: []string{"b/status", "c/status", "d/status", "e/status", "f/status"}, ResourceNames: []string{"n"}, Verbs: []string{"get"}},
		},
		"get pods": {{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}, {NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	} {
		expect.Equal(t, want, ListRights(RightsOf("", rules...)))
	}
	expect.Equal(t, "get pods in a", ListRights(RightsOf("a", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}})))
}

func TestMissing(t *testing.T) {
	t.Parallel()
	main, refused := fake.NewClientset(), errors.New("no")
	main.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		review.Status.Allowed = review.Spec.ResourceAttributes.Verb == "get" && slices.Contains(review.Spec.Groups, "system:serviceaccounts:ns") && slices.Contains(review.Spec.Groups, "system:authenticated")
		var err error
		if review.Spec.ResourceAttributes.Verb == "watch" {
			err = refused
		}
		return true, review, err
	})
	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods", "secrets"}, Verbs: []string{"get", "list"}}
	missing, err := MissingRights(t.Context(), main, "system:serviceaccount:ns:annex", RightsOf("", rule))
	expect.NoError(t, err)
	expect.Equal(t, "list pods, list secrets", ListRights(missing))
	rule.Verbs = []string{"watch"}
	_, err = MissingRights(t.Context(), main, "system:serviceaccount:ns:annex", RightsOf("", rule))
	if !errors.Is(err, refused) {
		t.Errorf("the error is %v", err)
	}
}
