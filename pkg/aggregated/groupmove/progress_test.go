// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"testing"

	"github.com/annex-dev/annex/pkg/aggregated/group/grouptest"
	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/move"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestProgress counts what the phase does, and nothing of the phase before.
func TestProgress(t *testing.T) {
	t.Parallel()
	const finalize, back = hostingv1alpha1.MigrationFinalize, hostingv1alpha1.MigrationRollback
	for name, test := range map[string]struct {
		operation hostingv1alpha1.MigrationOperation
		phase     hostingv1alpha1.MigrationPhase
		want      *hostingv1alpha1.MigrationProgress
	}{
		"copies":          {"", hostingv1alpha1.MigrationCopying, &hostingv1alpha1.MigrationProgress{Done: 3, Total: 12}},
		"compares":        {"", hostingv1alpha1.MigrationVerifying, &hostingv1alpha1.MigrationProgress{Total: 12}},
		"follows":         {"", hostingv1alpha1.MigrationFollowing, nil},
		"observes":        {"", hostingv1alpha1.MigrationObserving, nil},
		"cleans":          {back, hostingv1alpha1.MigrationCleaning, nil},
		"begins to raise": {back, hostingv1alpha1.MigrationFollowing, nil},
		// An earlier attempt has deleted two.
		"deletes": {finalize, hostingv1alpha1.MigrationCleaning, &hostingv1alpha1.MigrationProgress{Done: 3, Total: 10}},
	} {
		m := newRun(hostingv1alpha1.MigrationSpec{})
		m.Migration.Spec.Operation = test.operation
		of := &resource{Resource: maincopy.Resource{Name: grouptest.Widgets}}
		of.progress.Store(&move.Progress{Total: 10, Copied: 3})
		m.resources = []*resource{of}
		status := hostingv1alpha1.MigrationStatus{
			Phase: test.phase, Progress: &hostingv1alpha1.MigrationProgress{Done: 7, Total: 7},
			Resources: []hostingv1alpha1.MigrationResourceStatus{{Name: grouptest.Widgets, Objects: 12}},
		}
		m.addProgress(&status)
		expect.Equal(t, test.want, status.Progress, name)
	}
}
