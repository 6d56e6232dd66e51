// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// wrong finds one thing in every policy.
func wrong(*policy) []warning {
	return []warning{{FieldRef: "spec.validations[0].expression", Warning: "no such field"}}
}

func newPolicy(generation, observed int64) *policy {
	return &policy{
		ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", Generation: generation},
		Status:     admissionregistrationv1.ValidatingAdmissionPolicyStatus{ObservedGeneration: observed},
	}
}

func TestPolicyStatus(t *testing.T) {
	t.Parallel()
	annexClient := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(annexClient, 0)
	policies := annexClient.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	c, err := newPolicyStatus(policies, factory.Admissionregistration().V1().ValidatingAdmissionPolicies().Informer(), wrong)
	expect.NoError(t, err)
	controllertest.Run(t, c, 1, factory)
	expect.Create(t, policies, newPolicy(3, 2))
	want := admissionregistrationv1.ValidatingAdmissionPolicyStatus{ObservedGeneration: 3, TypeChecking: &admissionregistrationv1.TypeChecking{ExpressionWarnings: wrong(nil)}}
	poll.Until(t, "the status of the policy", func() string {
		stored, err := policies.Get(t.Context(), "p", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		return cmp.Diff(want, stored.Status)
	})
}

func TestPolicyStatusReconcile(t *testing.T) {
	t.Parallel()
	group := admissionregistrationv1.Resource("validatingadmissionpolicies")
	tests := map[string]struct {
		policy  *policy
		answer  error
		applied bool
		failed  bool
	}{
		"gone":                  {nil, nil, false, false},
		"checked":               {newPolicy(2, 2), nil, false, false},
		"changed since":         {newPolicy(2, 1), nil, true, false},
		"deleted meanwhile":     {newPolicy(2, 1), apierrors.NewNotFound(group, "p"), true, false},
		"made anew meanwhile":   {newPolicy(2, 1), apierrors.NewConflict(group, "p", errors.New("another UID")), true, false},
		"annex does not answer": {newPolicy(2, 1), errors.New("connection refused"), true, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			annexClient := fake.NewClientset()
			applied := false
			annexClient.PrependReactor("patch", group.Resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
				applied = true
				return true, newPolicy(2, 2), test.answer
			})
			stored := cache.NewStore(cache.MetaNamespaceKeyFunc)
			if test.policy != nil {
				expect.NoError(t, stored.Add(test.policy))
			}
			c := &policyStatus{annexClient.AdmissionregistrationV1().ValidatingAdmissionPolicies(), stored, wrong}
			if err := c.reconcile(t.Context(), "p"); (err != nil) != test.failed {
				t.Errorf("reconcile: %v, want an error: %t", err, test.failed)
			}
			if applied != test.applied {
				t.Errorf("status written: %t, want %t", applied, test.applied)
			}
		})
	}
}
