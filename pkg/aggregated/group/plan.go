// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package group

import (
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Plan lists the writes for a group.
type Plan struct {
	// Observe means that the plan is incomplete without the observations of the main cluster's objects.
	Observe bool
	// Order is the Migration to create, because labels order it. Forget is a completed Migration to delete,
	// because the group has returned to the main cluster since.
	Order, Forget *Migration
	// Withdraw and Record are HostedResources whose takeover is withdrawn or recorded.
	Withdraw, Record []string
	// AddFinalizer and RemoveFinalizer are definitions of the main cluster.
	AddFinalizer, RemoveFinalizer []string
	// Explain are definitions of the main cluster, with the message of their condition Terminating.
	Explain map[string]string
	// Delete are definitions of annex, deleted with their objects because the main
	// cluster's definitions were deleted.
	Delete []string
	// Unfreeze removes the policy that freezes the group in the main cluster, because nothing of it is left.
	Unfreeze bool
	// Write are definitions to create or update in annex.
	Write []*Definition
	// GiveBack are the APIServices of versions that the main cluster serves again. Takeovers are withdrawn before.
	GiveBack []*APIService
	// Remove are the APIServices of versions that annex no longer serves.
	Remove []*APIService
	// Versions are those that annex serves, or served with other data, the most mature first.
	Versions []Version
	// Synced has the condition DefinitionSynced of the HostedResources of the same names. Others lose theirs.
	Synced map[string]Status
}

// Plan is a pure function of the State and does not depend on time.
func (s *State) Plan() *Plan {
	p := &Plan{Explain: map[string]string{}, Synced: map[string]Status{}}
	if !s.planMove(p) {
		s.planFollowing(p)
	}
	s.planVersions(p)
	return p
}

// planFollowing plans a group without a Migration.
func (s *State) planFollowing(p *Plan) {
	for _, name := range sortedNames(s.Annex, isFollower) {
		switch main := s.Main[name]; {
		case main == nil || isTerminating(main):
			p.Synced[name] = mainDefinitionDeleted()
		case !isLabelled(main):
			p.Synced[name] = no(ReasonNotLabelled, "The definition in the main cluster is no longer labelled. annex keeps its own with all objects, and follows no changes. Let it follow: %s", hostingv1alpha1.LabelCommand([]string{name}))
		}
	}
	for _, name := range sortedNames(s.Main, s.hasFinalizer) {
		if !isLabelled(s.Main[name]) {
			p.RemoveFinalizer = append(p.RemoveFinalizer, name)
		}
	}
	s.planDeletions(p)
	if s.isHosted() {
		s.planHosted(p)
	} else {
		s.planFresh(p)
	}
}

func (s *State) record(p *Plan, name string) {
	if !s.isRecorded(name) {
		p.Record = append(p.Record, name)
	}
}

// planFresh plans a group that annex does not serve. The labels order a Migration, if the main cluster has no
// objects of the group.
func (s *State) planFresh(p *Plan) {
	p.Withdraw = s.recorded() // they are of definitions that annex no longer has
	if len(s.labelled()) == 0 {
		return
	}
	statuses := s.applyToGroup(s.causes())
	if len(statuses) == 0 {
		statuses = s.applyToGroup(s.planOrder(p))
	}
	maps.Copy(p.Synced, statuses)
	s.removeFinalizers(p, statuses)
}

// planOrder returns the statuses of at least one definition.
func (s *State) planOrder(p *Plan) map[string]Status {
	first := s.labelled()[0]
	switch of := s.Ordered; {
	case s.Migration != nil:
		return map[string]Status{first: pending("Waiting for the Migration %q: %s", s.Migration.Name, messageOf(s.Migration))}
	case of == nil:
	case of.Status.Phase == hostingv1alpha1.MigrationCompleted:
		p.Forget = of
	default:
		return map[string]Status{first: no(ReasonMoveFailed,
			"The Migration %q did not move the group: %s. annex tries again once that Migration is deleted, which it does itself after a day", of.Name, messageOf(of))}
	}
	if s.Observed == nil {
		p.Observe = true
		return nil
	}
	if inTheWay := s.objectsInTheWay(); len(inTheWay) > 0 {
		return inTheWay
	}
	if p.Forget == nil {
		p.Order = orderedMigration(s.Name)
	}
	return map[string]Status{first: pending("annex moves the group, which has no objects")}
}

// notYetServed returns the definitions that annex must still create, update or establish.
func (s *State) notYetServed(labelled []string) []string {
	return slices.DeleteFunc(slices.Clone(labelled), func(name string) bool {
		current := s.Annex[name]
		return current != nil && isEstablished(current) && sameSpec(current, desired(s.Main[name], current))
	})
}

// causes returns the statuses of those labelled definitions that prevent the takeover themselves, except by their
// objects.
func (s *State) causes() map[string]Status {
	labelled, unlabelled, leaving := s.labelled(), s.unlabelled(), s.terminating()
	all := func(of Status) map[string]Status {
		statuses := map[string]Status{}
		for _, name := range labelled {
			statuses[name] = of
		}
		return statuses
	}
	builtIn, foreign, other := s.routedTo(RouteBuiltIn), s.routedTo(RouteForeign), s.routedTo(RouteDataReplaced)
	switch {
	case len(builtIn) > 0:
		return all(no(ReasonForeignAPIService, "The main cluster serves %s/%s itself, not from a definition", s.Name, builtIn[0]))
	case len(foreign) > 0:
		return all(foreignRoute(foreign))
	case len(other) > 0:
		return all(s.dataReplaced(other))
	case len(unlabelled) > 0 && s.movement() == preparing:
		return all(beingMoved("The Migration %q labels the definitions of the group; not yet: %s", s.Migration.Name, strings.Join(unlabelled, ", ")))
	case len(unlabelled) > 0:
		return all(no(ReasonGroupIncomplete, "A group is taken over as a whole, and other definitions of it are not labelled. Label them: %s", hostingv1alpha1.LabelCommand(unlabelled)))
	case len(leaving) > 0:
		return all(no(ReasonGroupNotReady, "Waiting until the main cluster has deleted other definitions of the group: %s", strings.Join(leaving, ", ")))
	}
	own := map[string]Status{}
	for _, name := range labelled {
		if of := s.ownObstacle(name); of != nil {
			own[name] = *of
		} else if len(s.servedBy(name, byMain...)) == 0 {
			own[name] = no(ReasonNotServed, "The definition serves no version, so annex cannot list its objects in the main cluster")
		}
	}
	return own
}

// ownObstacle returns what prevents following a definition, or nil.
func (s *State) ownObstacle(name string) *Status {
	var of Status
	current := s.Annex[name]
	switch {
	case current != nil && !isFollower(current):
		of = no(ReasonDefinedInAnnex, "annex has a definition of this name that does not come from the main cluster, and does not overwrite it. At annex's own endpoint delete it, which deletes its objects, or let it follow: kubectl annotate crd %s %s=%s",
			name, hostingv1alpha1.DefinitionFromAnnotation, hostingv1alpha1.DefinitionFromMain)
	case current != nil && isTerminating(current):
		of = no(ReasonTerminating, "annex's definition is being deleted, and its objects with it. annex makes it again after that, because the main cluster has it")
	case current == nil && !isEstablished(s.Main[name]):
		of = notEstablished(s.Main[name])
	default:
		return nil
	}
	return &of
}

// objectsInTheWay returns the statuses of the labelled definitions of which the main cluster stores objects, or
// might.
func (s *State) objectsInTheWay() map[string]Status {
	own := map[string]Status{}
	for name, seen := range s.Observed {
		switch {
		case apierrors.IsForbidden(seen.Err):
			own[name] = no(ReasonForbidden, "annex may not move the group: %v. Allow it: %s", seen.Err, hostingv1alpha1.RightsCommand(s.Name))
		case seen.Err != nil:
			own[name] = pending("annex does not know yet whether the main cluster stores objects of this resource: %v", seen.Err)
		case seen.Object != "":
			own[name] = no(ReasonObjectsExist, "The main cluster stores objects of this resource, among them %q. annex has changed nothing there. Move the group with its objects: %s",
				seen.Object, hostingv1alpha1.MoveCommand(s.Name))
		}
	}
	return own
}

// applyToGroup adds statuses for all other labelled definitions: a group waits for each of them.
func (s *State) applyToGroup(own map[string]Status) map[string]Status {
	if len(own) == 0 {
		return nil
	}
	first := slices.Min(slices.Collect(maps.Keys(own)))
	cause := own[first]
	statuses := maps.Clone(own)
	for _, name := range s.labelled() {
		if _, has := own[name]; has {
			continue
		}
		of := no(ReasonGroupNotReady, "A group is taken over as a whole, and waits for %s: %s", first, cause.Message)
		switch cause.Reason {
		case ReasonObjectsExist, ReasonMoveFailed, ReasonTakingOver:
			of.Status, of.Reason = cause.Status, cause.Reason
		}
		statuses[name] = of
	}
	return statuses
}

// planHosted plans a group that annex serves. Each definition is followed separately. Versions and definitions
// that were added are taken over if that is safe for all: the main cluster stores no objects of them, because the
// group is frozen there.
func (s *State) planHosted(p *Plan) {
	allSafe := true
	labelled, unlabelled := s.labelled(), s.unlabelled()
	for _, name := range unlabelled {
		if versions := s.servedBy(name, RouteAnnex); s.Annex[name] == nil && len(versions) > 0 {
			p.Synced[name] = no(ReasonNotLabelled, "annex answers for %s of this group and has no such resource. Let annex follow its definition too: %s",
				strings.Join(versions, ", "), hostingv1alpha1.LabelCommand([]string{name}))
		}
	}
	for _, name := range labelled {
		of, safe := s.statusOf(name, unlabelled)
		p.Synced[name] = of
		allSafe = allSafe && safe
	}
	for _, name := range labelled {
		current := s.Annex[name]
		if s.ownObstacle(name) != nil {
			continue
		}
		wanted := desired(s.Main[name], current)
		if differs(current, wanted) {
			p.Write = append(p.Write, wanted)
		}
		if allSafe && sameSpec(current, wanted) {
			s.record(p, name)
		}
	}
	s.addFinalizers(p, labelled)
}

// statusOf returns the status of a definition in a hosted group, and whether it permits that versions are taken
// over that the main cluster still serves.
func (s *State) statusOf(name string, unlabelled []string) (Status, bool) {
	left := s.servedBy(name, byMain...)
	switch of := s.ownObstacle(name); {
	case of != nil:
		return *of, len(left) == 0
	case len(left) > 0 && len(unlabelled) > 0:
		return no(ReasonGroupIncomplete, "The main cluster still answers for %s: a group is taken over as a whole, and other definitions of it are not labelled. Label them: %s",
			strings.Join(left, ", "), hostingv1alpha1.LabelCommand(unlabelled)), false
	case len(left) > 0:
		return pending("Waiting until the main cluster sends requests for %s to annex", strings.Join(left, ", ")), true
	}
	if foreign := s.servedBy(name, RouteForeign); len(foreign) > 0 {
		return foreignRoute(foreign), true
	}
	if other := s.servedBy(name, RouteDataReplaced); len(other) > 0 {
		return s.dataReplaced(other), true
	}
	return Status{Status: metav1.ConditionTrue, Reason: ReasonSynced, Message: "annex follows the definition in the main cluster"}, true
}
