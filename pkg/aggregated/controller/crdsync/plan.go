// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// plan lists the writes for a group.
type plan struct {
	// observe means that the plan is incomplete without the observations of the main cluster's objects.
	observe bool
	// move creates the Migration that the labels order, and forget deletes one that completed: the group has
	// returned to the main cluster since.
	move   bool
	forget *hostingv1alpha1.Migration
	// unfreeze removes the policy that freezes the group in the main cluster, because nothing of it is left.
	unfreeze bool
	// write are definitions to create or update in annex, in this request.
	write []*definition
	// withdraw and clear are definitions of annex whose takeover is withdrawn or cleared.
	withdraw, clear []string
	// addFinalizer and removeFinalizer are definitions of the main cluster.
	addFinalizer, removeFinalizer []string
	// updateStatus are definitions of the main cluster.
	updateStatus []*definition
	// delete are definitions of annex, deleted with their objects because the main
	// cluster's definitions were deleted.
	delete []string
	// giveBack are the APIServices of versions that the main cluster serves again.
	giveBack []*apiService
	// statuses are written to the HostedResources of the same names. Others lose theirs.
	statuses map[string]syncStatus
}

// plan is a pure function of the group and does not depend on time.
func (g *group) plan() *plan {
	p := &plan{statuses: map[string]syncStatus{}}
	if g.planMove(p) {
		return p
	}
	for _, name := range g.followers() {
		switch main := g.main[name]; {
		case main == nil || isTerminating(main):
			p.statuses[name] = mainDefinitionDeleted()
		case !isLabelled(main):
			p.statuses[name] = noLongerLabelled(name)
		}
	}
	g.planFinalizers(p)
	g.planDeletions(p)
	if g.isHosted() {
		g.planHosted(p)
	} else {
		g.planFresh(p)
	}
	return p
}

// withdraw withdraws the takeover of every definition.
func (g *group) withdraw(p *plan) { p.withdraw = slices.Sorted(maps.Keys(g.takeovers)) }

func (g *group) clear(p *plan, name string) {
	if !g.isCleared(name) {
		p.clear = append(p.clear, name)
	}
}

// planFresh plans a group that annex does not serve. The labels order a Migration, if the main cluster has no
// objects of the group.
func (g *group) planFresh(p *plan) {
	g.withdraw(p) // what is recorded is of definitions that annex no longer has
	if len(g.labelled()) == 0 {
		return
	}
	statuses := g.obstacles()
	if len(statuses) == 0 {
		statuses = g.applyToGroup(g.planOrder(p))
	}
	maps.Copy(p.statuses, statuses)
	g.removeFinalizers(p, statuses)
}

// planOrder returns the statuses of at least one definition.
func (g *group) planOrder(p *plan) map[string]syncStatus {
	first := g.labelled()[0]
	switch of := g.ordered; {
	case g.migration != nil:
		return map[string]syncStatus{first: pending("Waiting for the Migration %q: %s", g.migration.Name, messageOf(g.migration))}
	case of == nil:
	case of.Status.Phase == hostingv1alpha1.MigrationCompleted:
		p.forget = of
	default:
		return map[string]syncStatus{first: moveFailed(of)}
	}
	if g.observed == nil {
		p.observe = true
		return nil
	}
	if inTheWay := g.objectsInTheWay(); len(inTheWay) > 0 {
		return inTheWay
	}
	p.move = p.forget == nil
	return map[string]syncStatus{first: pending("annex moves the group, which has no objects")}
}

// notYetServed returns the definitions that annex must still create, update or establish.
func (g *group) notYetServed(labelled []string) []string {
	return slices.DeleteFunc(slices.Clone(labelled), func(name string) bool {
		current := g.annex[name]
		return current != nil && isEstablished(current) && sameSpec(current, desired(g.main[name], current))
	})
}

// obstacles returns statuses for all labelled definitions if anything except objects
// prevents the takeover.
func (g *group) obstacles() map[string]syncStatus { return g.applyToGroup(g.causes()) }

// causes returns the statuses of those labelled definitions that are obstacles themselves.
func (g *group) causes() map[string]syncStatus {
	labelled, unlabelled, leaving := g.labelled(), g.unlabelled(), g.terminating()
	all := func(of syncStatus) map[string]syncStatus {
		verdicts := map[string]syncStatus{}
		for _, name := range labelled {
			verdicts[name] = of
		}
		return verdicts
	}
	if foreign := g.routedTo(routeForeign); len(foreign) > 0 {
		return all(foreignRoute(foreign))
	}
	if other := g.routedTo(routeDataReplaced); len(other) > 0 {
		return all(dataReplaced(g.name, other))
	}
	switch {
	case len(unlabelled) > 0 && movementOf(g.migration) == preparing:
		return all(beingMoved(fmt.Sprintf("The Migration %q labels the definitions of the group; not yet: %s", g.migration.Name, strings.Join(unlabelled, ", "))))
	case len(unlabelled) > 0:
		return all(unlabelledGroup(unlabelled))
	}
	if len(leaving) > 0 {
		return all(notSynced(reasonGroupNotReady, "Waiting until the main cluster has deleted other definitions of the group: %s", strings.Join(leaving, ", ")))
	}
	own := map[string]syncStatus{}
	for _, name := range labelled {
		if of := g.ownObstacle(name); of != nil {
			own[name] = *of
		} else if len(g.servedBy(name, routeMain)) == 0 {
			own[name] = notServed()
		}
	}
	return own
}

// ownObstacle returns what prevents following a definition, or nil.
func (g *group) ownObstacle(name string) *syncStatus {
	var of syncStatus
	current := g.annex[name]
	switch {
	case current != nil && !isFollower(current):
		of = definedInAnnex(name)
	case current != nil && isTerminating(current):
		of = terminatingInAnnex()
	case current == nil && !isEstablished(g.main[name]):
		of = notEstablished(g.main[name])
	default:
		return nil
	}
	return &of
}

// objectsInTheWay returns the statuses of the labelled definitions of which the main cluster stores objects, or
// might.
func (g *group) objectsInTheWay() map[string]syncStatus {
	own := map[string]syncStatus{}
	for name, seen := range g.observed {
		switch {
		case apierrors.IsForbidden(seen.err):
			own[name] = listForbidden(g.name, seen.err)
		case seen.err != nil:
			own[name] = pending("annex does not know yet whether the main cluster stores objects of this resource: %v", seen.err)
		case seen.object != "":
			own[name] = objectsExist(g.name, seen.object)
		}
	}
	return own
}

// applyToGroup adds statuses for all other labelled definitions: a group waits for each
// of them.
func (g *group) applyToGroup(own map[string]syncStatus) map[string]syncStatus {
	if len(own) == 0 {
		return nil
	}
	first := slices.Sorted(maps.Keys(own))[0]
	cause := own[first]
	verdicts := maps.Clone(own)
	for _, name := range g.labelled() {
		if _, has := own[name]; has {
			continue
		}
		of := notSynced(reasonGroupNotReady, "A group is taken over as a whole, and waits for %s: %s", first, cause.message)
		switch cause.reason {
		case reasonObjectsExist, reasonMoveFailed, reasonTakingOver:
			of.status, of.reason = cause.status, cause.reason
		}
		verdicts[name] = of
	}
	return verdicts
}

// routedTo returns the versions of the group with a route.
func (g *group) routedTo(by route) []string {
	var versions []string
	for _, version := range slices.Sorted(maps.Keys(g.routes)) {
		if g.routes[version] == by {
			versions = append(versions, version)
		}
	}
	return versions
}

// planHosted plans a group that annex serves. Each definition is followed separately. Versions and definitions
// that were added are cleared if that is safe for all: the main cluster stores no objects of them, because the
// group is frozen there.
func (g *group) planHosted(p *plan) {
	allSafe := true
	labelled, unlabelled := g.labelled(), g.unlabelled()
	for _, name := range unlabelled {
		if versions := g.servedBy(name, routeAnnex); g.annex[name] == nil && len(versions) > 0 {
			p.statuses[name] = notFollowed(name, versions)
		}
	}
	for _, name := range labelled {
		of, safe := g.statusOf(name, unlabelled)
		p.statuses[name] = of
		allSafe = allSafe && safe
	}
	for _, name := range labelled {
		current := g.annex[name]
		if g.ownObstacle(name) != nil {
			continue
		}
		wanted := desired(g.main[name], current)
		if differs(current, wanted) {
			p.write = append(p.write, wanted)
		}
		if allSafe && sameSpec(current, wanted) {
			g.clear(p, name)
		}
	}
	g.addFinalizers(p, labelled)
}

// statusOf returns the status of a definition in a hosted group, and whether it permits that versions are taken
// over that the main cluster still serves.
func (g *group) statusOf(name string, unlabelled []string) (syncStatus, bool) {
	left := g.servedBy(name, routeMain)
	switch of := g.ownObstacle(name); {
	case of != nil:
		return *of, len(left) == 0
	case len(left) > 0 && len(unlabelled) > 0:
		return partlyLabelled(left, unlabelled), false
	case len(left) > 0:
		return pending("Waiting until the main cluster sends requests for %s to annex", strings.Join(left, ", ")), true
	}
	if foreign := g.servedBy(name, routeForeign); len(foreign) > 0 {
		return foreignRoute(foreign), true
	}
	if other := g.servedBy(name, routeDataReplaced); len(other) > 0 {
		return dataReplaced(g.name, other), true
	}
	return synced(), true
}
