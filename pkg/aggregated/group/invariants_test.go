// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package group

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// TestInvariants plans every combination of what concerns a group with one definition in the main cluster.
func TestInvariants(t *testing.T) {
	t.Parallel()
	mains := map[string][]change{
		"labelled": {labelled}, "unlabelled": {}, "deleted": {labelled, leaving}, "deleted without finalizer": {labelled, leaving, withoutFinalizer},
		"deleted without label": {labelled, leaving, unlabelled},
	}
	annexes := map[string][]change{
		"absent": nil, "follower": {follower}, "foreign": {}, "terminating": {follower, leaving},
		"of another": {follower, annotated(hostingv1alpha1.DefinitionUIDAnnotation, "another")},
	}
	migrations := map[string]*Migration{"none": nil}
	for _, operation := range []hostingv1alpha1.MigrationOperation{hostingv1alpha1.MigrationMove, hostingv1alpha1.MigrationRollback, hostingv1alpha1.MigrationFinalize} {
		for _, phase := range []hostingv1alpha1.MigrationPhase{
			hostingv1alpha1.MigrationPending, hostingv1alpha1.MigrationCopying, hostingv1alpha1.MigrationFollowing, hostingv1alpha1.MigrationVerifying,
			hostingv1alpha1.MigrationSwitching, hostingv1alpha1.MigrationObserving, hostingv1alpha1.MigrationCleaning,
		} {
			migrations[fmt.Sprintf("%s %s", operation, phase)] = migrationIn(operation, phase)
		}
	}
	raised := migrationIn(hostingv1alpha1.MigrationRollback, hostingv1alpha1.MigrationSwitching)
	raised.Status.LastResourceVersion = 1
	migrations["Rollback Switching, raised"] = raised
	takeovers := map[string]int64{"none": -1, "present": 3, "outdated": 2}

	states := 0
	for main, mainChanges := range mains {
		for annex, annexChanges := range annexes {
			for route := RouteNone; route <= RouteForeign; route++ {
				for takeover, generation := range takeovers {
					for migration, of := range migrations {
						for _, gate := range []Gate{open, settling, closed} {
							state := given{main: definitions(crd(widgets, mainChanges...)), migration: of, gate: gate}
							resource := &HostedResource{}
							resource.Name = widgets
							if generation >= 0 {
								resource.Status.Takeover = &hostingv1alpha1.HostedResourceTakeover{DefinitionUID: "uid", DefinitionGeneration: generation}
							}
							state.hosted = []*HostedResource{resource}
							if annex != "absent" {
								of := crd(widgets, annexChanges...)
								of.UID, of.Generation = "uid", 3
								state.annex = definitions(of)
							}
							state.routes = routes("v1", route)
							s := state.state()
							for _, broken := range s.brokenInvariants() {
								t.Errorf("main %s, annex %s, route %d, takeover %s, migration %s, gate %+v: %s", main, annex, route, takeover, migration, gate, broken)
							}
							states++
						}
					}
				}
			}
		}
	}
	if states < 20_000 {
		t.Errorf("%d states", states)
	}
}

// brokenInvariants returns what must not be planned, and is.
func (s *State) brokenInvariants() (broken []string) {
	p, main, annex := s.Plan(), s.Main[widgets], s.Annex[widgets]
	fail := func(is bool, what string) {
		if is {
			broken = append(broken, what)
		}
	}
	published := slices.ContainsFunc(p.Versions, func(v Version) bool { return v.Operation != Keep })
	takes := slices.ContainsFunc(p.Versions, func(v Version) bool { return v.Operation == Create || v.Operation == TakeOver })
	recorded := s.isRecorded(widgets)
	moving := s.movement()

	mayTake := recorded && isLabelled(main) && isFollower(annex)
	mayDelete := isTerminating(main) && s.hasFinalizer(main) && isLabelled(main) && follows(annex, main)
	fail(takes && !mayTake, "a definition of the main cluster is hidden without a recorded takeover")
	fail(takes && !s.Gate.Open(), "an APIService is made although the main cluster may not reach annex")
	fail(published && !s.Gate.Proven, "an APIService is written although the main cluster does not reach annex")
	fail(published && len(p.GiveBack)+len(p.Remove) > 0, "a version is given back and published")
	fail(published && slices.Contains([]movement{preparing, copying, handingBack}, moving), "a version is published while the Migration forbids it")
	fail(published && len(p.Withdraw) > 0 && recorded, "a version is published whose takeover is withdrawn")
	fail(len(p.Withdraw) > 0 && len(p.Record) > 0, "a takeover is withdrawn and recorded")
	fail(len(p.GiveBack) > 0 && s.IsTakenOver() && len(p.Withdraw) == 0, "a version is given back before its takeover is withdrawn")
	fail(len(p.GiveBack) > 0 && moving != handingBack && moving != copying, "a version is given back without a Migration")
	fail(len(p.Delete) > 0 && !mayDelete, "a definition is deleted that was not deleted in the main cluster")
	fail(len(p.Delete) > 0 && moving != notMoving, "a definition is deleted during a Migration")
	fail(len(p.Record) > 0 && !isFollower(annex) && moving != switching, "the takeover of a definition is recorded that follows none")
	fail(len(p.Record) > 0 && moving != switching && !s.isHosted(), "a takeover is recorded without a Migration")
	fail(len(p.Write) > 0 && annex != nil && !isFollower(annex), "a definition of a user is overwritten")
	fail(p.Order != nil && s.isHosted(), "a Migration is ordered of a group that annex serves")
	fail(slices.ContainsFunc(p.RemoveFinalizer, func(string) bool { return !s.hasFinalizer(main) }), "a finalizer is removed that is not there")

	lost := slices.Contains([]Route{RouteNone, RouteMain, RouteReverted}, s.Route("v1"))
	fail(lost && mayTake && !isTerminating(annex) && s.Gate.Open() && !s.isWithheld() && !takes,
		"a route that was lost is not taken over again")
	fail(!reflect.DeepEqual(p, s.Plan()), "the plan of the same state is another")
	return broken
}
