// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"testing"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

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
