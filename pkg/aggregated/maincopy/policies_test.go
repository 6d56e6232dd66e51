// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
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
				before.name = whole.name
				stored, _ := before.objects()
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
