// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// migrationIn is a Migration that has begun.
func migrationIn(operation hostingv1alpha1.MigrationOperation, phase hostingv1alpha1.MigrationPhase) *hostingv1alpha1.Migration {
	now := metav1.Now()
	return &hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{Name: "m"},
		Spec:       hostingv1alpha1.MigrationSpec{Group: groupName, Operation: operation},
		Status:     hostingv1alpha1.MigrationStatus{Phase: phase, StartTime: &now},
	}
}

func withMainCopy(crd *definition) {
	follower(crd)
	setAnnotation(crd, hostingv1alpha1.MainCopyAnnotation, "2026-01-01T00:00:00Z")
}

func opened(crd *definition) {
	crd.Spec.Versions = append(crd.Spec.Versions, definitionVersion{Name: hostingv1alpha1.MainCopyVersion, Served: true})
}

// TestPlanMove is about groups with a Migration.
func TestPlanMove(t *testing.T) {
	t.Parallel()
	const (
		move, rollback       = hostingv1alpha1.MigrationMove, hostingv1alpha1.MigrationRollback
		pending, copying     = hostingv1alpha1.MigrationPending, hostingv1alpha1.MigrationCopying
		switching, observing = hostingv1alpha1.MigrationSwitching, hostingv1alpha1.MigrationObserving
	)
	main := byName(crd(widgets, labelled))
	moving := []string{widgets + " Unknown Moving"}
	raised := migrationIn(rollback, switching)
	raised.Status.LastResourceVersion = 1
	for name, tc := range map[string]planCase{
		"not defined in annex": {
			group: group{main: main, migration: migrationIn(move, pending)},
			write: []string{"+" + widgets}, statuses: []string{widgets + " Unknown TakingOver"},
		},
		"defined: not published": {
			group:    group{main: main, annex: byName(crd(widgets, follower)), migration: migrationIn(move, pending)},
			statuses: moving,
		},
		"cleared before the Migration": {
			group: group{main: main, annex: byName(crd(widgets, cleared)), migration: migrationIn(move, copying)},
			write: []string{widgets + " withdrawn"}, statuses: moving,
		},
		"not labelled": {
			group:    group{main: byName(crd(widgets, labelled), crd(gadgets)), migration: migrationIn(move, pending)},
			statuses: moving,
		},
		"not labelled, and created after the others were": {
			group:    group{main: byName(crd(widgets, labelled), crd(gadgets)), migration: migrationIn(move, copying)},
			statuses: []string{widgets + " False GroupIncomplete"},
		},
		"definition changed while copying": {
			group: group{main: byName(crd(widgets, labelled, shortName)), annex: byName(crd(widgets, follower)), migration: migrationIn(move, copying)},
			write: []string{widgets}, statuses: []string{widgets + " Unknown TakingOver"},
		},
		"switching": {
			group: group{main: main, annex: byName(crd(widgets, follower)), migration: migrationIn(move, switching)},
			write: []string{widgets + " cleared"}, statuses: moving,
		},
		"definition changed while switching": {
			group:    group{main: byName(crd(widgets, labelled, shortName)), annex: byName(crd(widgets, cleared)), routes: to("v1", routeAnnex), migration: migrationIn(move, switching)},
			statuses: moving,
		},
		"switch that is undone": {
			group: group{main: main, annex: byName(crd(widgets, cleared)), routes: to("v1", routeAnnex), migration: migrationIn(move, copying)},
			write: []string{widgets + " withdrawn"}, giveBack: []string{"v1"}, statuses: moving,
		},
		"observed: as any hosted group": {
			group:    group{main: main, annex: byName(crd(widgets, cleared, withMainCopy)), routes: to("v1", routeAnnex), migration: migrationIn(move, observing)},
			statuses: []string{widgets + " True Synced"},
		},
		"another definition while switching": {
			group: group{main: byName(crd(widgets, labelled), crd(gadgets, labelled)), annex: byName(crd(widgets, follower)), migration: migrationIn(move, switching)},
			write: []string{widgets + " cleared"}, statuses: []string{gadgets + " Unknown Moving", widgets + " Unknown Moving"},
		},
		"rollback: definition with the temporary version is not followed": {
			group:    group{main: byName(crd(widgets, labelled, opened)), annex: byName(crd(widgets, cleared)), routes: to("v1", routeAnnex), migration: migrationIn(rollback, copying)},
			statuses: moving,
		},
		"temporary version without a Migration": {
			group:    group{main: byName(crd(widgets, labelled, opened)), annex: byName(crd(widgets, cleared)), routes: to("v1", routeAnnex)},
			statuses: moving,
		},
		"rollback is switching": {
			group:    group{main: main, annex: byName(crd(widgets, cleared)), routes: to("v1", routeAnnex), migration: migrationIn(rollback, switching)},
			statuses: moving,
		},
		"rollback is switching, above all versions that clients have": {
			group: group{main: main, annex: byName(crd(widgets, cleared)), routes: to("v1", routeAnnex), migration: raised},
			write: []string{widgets + " withdrawn"}, giveBack: []string{"v1"}, statuses: moving,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.check(t)
		})
	}
}
