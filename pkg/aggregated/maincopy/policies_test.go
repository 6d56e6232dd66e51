// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestApplyPolicyReplaces(t *testing.T) {
	t.Parallel()
	whole := copyPolicy("example.com", "annex")
	widgets := Resource{Stored: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}}
	for name, before := range map[string]policy{
		"the same":                whole,
		"of another user":         copyPolicy("example.com", "other"),
		"that exempts objects":    whole.exempting(widgets, sets.New("a")),
		"that excludes a version": freezePolicy("example.com", "annex"),
	} {
		for by, wanted := range map[string]policy{"whole": whole, "exempting": whole.exempting(widgets, sets.New("c", "b"))} {
			t.Run(name+" by "+by, func(t *testing.T) {
				t.Parallel()
				stored, _ := before.objects()
				stored.Name = whole.name
				c := &Copy{kube: fake.NewClientset(stored)}
				expect.NoError(t, c.applyPolicy(t.Context(), wanted))
				got, err := c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), whole.name, metav1.GetOptions{})
				expect.NoError(t, err)
				want, _ := wanted.objects()
				expect.Equal(t, want.Spec, got.Spec)
			})
		}
	}
}

// TestPausedBeforePolicy pauses a leader before it creates a policy, until its successor has removed that: what the
// leader creates then is not in force.
func TestPausedBeforePolicy(t *testing.T) {
	t.Parallel()
	kube := fake.NewClientset()
	c := &Copy{kube: kube}
	replaced := errors.New("another process has continued the migration")
	checks := 0
	err := c.Fenced(func(context.Context) error {
		if checks++; checks == 1 {
			return nil
		}
		return replaced
	}).apply(t.Context(), freezePolicy("example.com", "annex"))
	if !errors.Is(err, replaced) {
		t.Errorf("a replaced leader applies a policy: %v", err)
	}
	bindings, err := kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	if len(bindings.Items) > 0 {
		t.Errorf("%s is bound", bindings.Items[0].Spec.PolicyName)
	}
}
