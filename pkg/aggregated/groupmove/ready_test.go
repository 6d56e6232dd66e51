// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestFull: a switch waits for space in the Stores that it writes to, and not for a slow one.
func TestFull(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ full, reason, want string }{
		"its Store":   {"own", "AlmostFull", `Waiting until the Store "own" has space: m`},
		"default":     {"default", "NoSpace", `Waiting until the Store "default" has space: m`},
		"slow":        {"own", reasonSlow, ""},
		"another one": {"other", "NoSpace", ""},
	} {
		var stores []runtime.Object
		for _, store := range []string{"default", "own", "other"} {
			of := &hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: store}}
			if store == test.full {
				of.Status.Conditions = []metav1.Condition{{Type: hostingv1alpha1.StoreUnderPressure, Status: metav1.ConditionTrue, Reason: test.reason, Message: "m"}}
			}
			stores = append(stores, of)
		}
		m := &moveIn{Run: newRun(hostingv1alpha1.MigrationSpec{}, stores...)}
		m.resources = []*resource{{hosted: &hostingv1alpha1.HostedResource{Spec: hostingv1alpha1.HostedResourceSpec{StoreName: "own"}}}}
		got, err := m.full(t.Context())
		expect.NoError(t, err)
		expect.Equal(t, test.want, got, name)
	}
}

// TestNeeds: an attempt waits for what the switch began with, and for nothing else that annex does not define meanwhile.
func TestNeeds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		phase          hostingv1alpha1.MigrationPhase
		canceled       bool
		moved, another bool
	}{
		"before the switch":           {followed, false, true, true},
		"before the switch, canceled": {followed, true, false, false},
		"switching":                   {switching, false, true, false},
		"switching, canceled":         {switching, true, true, false},
		"observing":                   {observing, false, true, false},
		"cleaning":                    {cleaning, false, false, false},
	} {
		r := newRun(hostingv1alpha1.MigrationSpec{})
		r.Status.Phase, r.canceled = test.phase, test.canceled
		r.Status.Resources = []hostingv1alpha1.MigrationResourceStatus{{Name: "widgets.example.com"}}
		expect.Equal(t, test.moved, r.needs("widgets.example.com"), name)
		expect.Equal(t, test.another, r.needs("gadgets.example.com"), "%s: another", name)
	}
}
