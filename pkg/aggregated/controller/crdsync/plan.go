// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// plan is what is to be done about a group.
type plan struct {
	// needsObjectCount: nothing, before it is known whether annex holds objects of the group.
	needsObjectCount bool
	// write are definitions to make or update in annex, in this order.
	write []*definition
	// withdraw and clear are definitions of annex's that may not be published any more,
	// or may be as they are.
	withdraw, clear []string
	// addFinalizer and release are definitions of the main cluster that get annex's finalizer,
	// or lose it.
	addFinalizer, removeFinalizer []string
	// updateStatus are definitions of the main cluster whose status is to be written.
	updateStatus []*definition
	// delete are definitions of annex's, which go with their objects because they were
	// deleted in the main cluster.
	delete []string
	// giveBack are the APIServices of versions that the main cluster is to answer for
	// again.
	giveBack []*apiService
	// statuses are what is said, by HostedResource. Nothing is said on others.
	statuses map[string]syncStatus
}

// watchRequests are the resources whose objects in the main cluster matter now: those that
// nothing but objects would keep from being taken over.
func (g *group) watchRequests() []watchRequest {
	var looks []watchRequest
	isHosted := g.isHosted()
	if !isHosted && len(g.obstacles()) > 0 || isHosted && len(g.unlabelled()) > 0 {
		return nil
	}
	for _, name := range g.labelled() {
		versions := g.servedBy(name, routeMain)
		if len(versions) == 0 || isHosted && g.ownObstacle(name) != nil {
			continue
		}
		looks = append(looks, g.watchRequestFor(name, versions))
	}
	return looks
}

// plan decides. It takes time into account nowhere: the same group gives the same
// plan.
func (g *group) plan() *plan {
	p := &plan{statuses: map[string]syncStatus{}}
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
	if slipped := g.lateObject(); slipped != "" || g.returning && g.isHosted() {
		if g.annexHasObjects == nil {
			return &plan{needsObjectCount: true}
		}
		if !*g.annexHasObjects {
			g.planReturn(p, slipped)
			return p
		}
	}
	if g.isHosted() {
		g.planHosted(p)
	} else {
		g.planFresh(p)
	}
	return p
}

// lateObject is a definition with an object that came into the main cluster while it
// was being taken over, and whose requests go to annex now.
func (g *group) lateObject() string {
	for _, name := range slices.Sorted(maps.Keys(g.observed)) {
		if of := g.observed[name]; of.appeared && g.main[name] != nil && len(g.switchedVersions(of)) > 0 {
			return name
		}
	}
	return ""
}

// switchedVersions are the versions guarded by an observation that annex answers for now.
func (g *group) switchedVersions(of observation) []string {
	var versions []string
	for _, version := range of.versions {
		if g.routes[version] == routeAnnex {
			versions = append(versions, version)
		}
	}
	return versions
}

// planReturn gives back all that the main cluster sends to annex, which keeps no object
// of the group. Somebody else may have begun with that; what was said then goes on.
func (g *group) planReturn(p *plan, slipped string) {
	for _, version := range g.routedTo(routeAnnex) {
		p.giveBack = append(p.giveBack, g.apiServices[version])
	}
	for _, name := range g.labelled() {
		before, reported := g.reported[name]
		switch {
		case slipped != "":
			p.statuses[name] = objectsAppeared(slipped, g.observed[slipped].object)
		case reported && before.Reason == reasonObjectsAppeared:
			p.statuses[name] = syncStatus{status: before.Status, reason: before.Reason, message: before.Message}
		default:
			p.statuses[name] = pending("annex gives the group back to the main cluster")
		}
	}
	g.withdraw(p)
}

// withdraw takes back the clearance of every definition in annex.
func (g *group) withdraw(p *plan) {
	for _, name := range g.followers() {
		if g.isCleared(name) {
			p.withdraw = append(p.withdraw, name)
		}
	}
}

// clear clears a definition of annex's, unless it is.
func (g *group) clear(p *plan, name string) {
	if !g.isCleared(name) {
		p.clear = append(p.clear, name)
	}
}

// planFresh is for a group of which the main cluster sends nothing to annex.
func (g *group) planFresh(p *plan) {
	labelled := g.labelled()
	if len(labelled) == 0 {
		// With no definition left in the main cluster there is nothing to take
		// over; a clearance then is of the past and does no harm.
		if len(g.unlabelled()) > 0 {
			g.withdraw(p)
		}
		return
	}
	obstacles := g.obstacles()
	if len(obstacles) == 0 {
		obstacles = g.objectsInTheWay()
	}
	if len(obstacles) > 0 {
		maps.Copy(p.statuses, obstacles)
		g.withdraw(p)
		g.removeFinalizers(p, obstacles)
		return
	}
	missing := g.notYetServed(labelled)
	unheld := g.addFinalizers(p, labelled)
	if len(missing) > 0 || len(unheld) > 0 {
		g.withdraw(p)
	}
	for _, name := range labelled {
		current := g.annex[name]
		if wanted := desired(g.main[name], current); differs(current, wanted) {
			p.write = append(p.write, wanted)
		}
		switch {
		case len(missing) > 0:
			p.statuses[name] = pending("Waiting until annex serves every definition of the group; not yet: %s", strings.Join(missing, ", "))
		case len(unheld) > 0:
			p.statuses[name] = pending("Waiting until annex's finalizer is on every definition of the group; not yet: %s", strings.Join(unheld, ", "))
		default:
			g.clear(p, name)
			p.statuses[name] = pending("Waiting until the main cluster sends requests to annex")
		}
	}
}

// notYetServed are the definitions that annex has yet to make, update or establish.
func (g *group) notYetServed(labelled []string) []string {
	return slices.DeleteFunc(slices.Clone(labelled), func(name string) bool {
		current := g.annex[name]
		return current != nil && isEstablished(current) && sameSpec(current, desired(g.main[name], current))
	})
}

// obstacles are verdicts on all labelled definitions if anything but objects keeps
// a group from being taken over.
func (g *group) obstacles() map[string]syncStatus {
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
	if len(unlabelled) > 0 {
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
	return g.applyToGroup(own)
}

// ownObstacle is what keeps one definition from being followed, or nil.
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

// objectsInTheWay are verdicts on all labelled definitions if the main cluster
// keeps objects of any, or might.
func (g *group) objectsInTheWay() map[string]syncStatus {
	own := map[string]syncStatus{}
	for _, name := range g.labelled() {
		if of := g.objectsOf(name); of != nil {
			own[name] = *of
		}
	}
	return g.applyToGroup(own)
}

// objectsOf is the verdict on a definition of whose objects the main cluster keeps
// some, or might; nil if it keeps none.
func (g *group) objectsOf(name string) *syncStatus {
	var of syncStatus
	switch seen, looked := g.observed[name]; {
	case !looked:
		of = pending("annex has not seen yet whether the main cluster keeps objects of this resource")
	case apierrors.IsForbidden(seen.err):
		of = listForbidden(g.name, g.labelled(), seen.err)
	case seen.err != nil:
		of = pending("annex has not seen yet whether the main cluster keeps objects of this resource: %v", seen.err)
	case seen.appeared:
		of = objectsAppeared(name, seen.object)
	case seen.object != "":
		of = objectsExist(seen.object)
	default:
		return nil
	}
	return &of
}

// applyToGroup adds verdicts on all other labelled definitions: a group waits for each.
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
		case reasonObjectsExist, reasonObjectsAppeared, reasonTakingOver:
			of.status, of.reason = cause.status, cause.reason
		}
		verdicts[name] = of
	}
	return verdicts
}

// routedTo are versions of the group that somebody answers for.
func (g *group) routedTo(by route) []string {
	var versions []string
	for _, version := range slices.Sorted(maps.Keys(g.routes)) {
		if g.routes[version] == by {
			versions = append(versions, version)
		}
	}
	return versions
}

// planHosted is for a group of which the main cluster sends at least one version
// to annex. Definitions are followed each for itself; versions that the main
// cluster still answers for are cleared only when that is safe for all.
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
	if !allSafe {
		g.withdraw(p)
	}
}

// statusOf says how one definition of a hosted group stands, and whether, as far as
// it is concerned, versions that the main cluster still answers for may be taken
// over.
func (g *group) statusOf(name string, unlabelled []string) (syncStatus, bool) {
	left := g.servedBy(name, routeMain)
	if of := g.ownObstacle(name); of != nil {
		return *of, len(left) == 0
	}
	if len(left) > 0 && len(unlabelled) > 0 {
		return partlyLabelled(left, unlabelled), false
	}
	if len(left) > 0 {
		if of := g.objectsOf(name); of != nil {
			of.message = "The main cluster still answers for " + strings.Join(left, ", ") + ". " + of.message
			return *of, false
		}
		return pending("Waiting until the main cluster sends requests for %s to annex", strings.Join(left, ", ")), true
	}
	if of := g.hiddenObject(name); of != nil {
		return *of, true
	}
	if foreign := g.servedBy(name, routeForeign); len(foreign) > 0 {
		return foreignRoute(foreign), true
	}
	if other := g.servedBy(name, routeDataReplaced); len(other) > 0 {
		return dataReplaced(g.name, other), true
	}
	return synced(), true
}

// hiddenObject is the verdict on a definition of which the main cluster got an object
// that nobody sees now. What was said before is all there is to know of it once
// the watch has ended.
func (g *group) hiddenObject(name string) *syncStatus {
	if seen := g.observed[name]; seen.appeared && len(g.switchedVersions(seen)) > 0 {
		of := objectsHidden(seen.object)
		return &of
	}
	if before, reported := g.reported[name]; reported && before.Reason == reasonObjectsAppeared {
		return &syncStatus{status: before.Status, reason: before.Reason, message: before.Message}
	}
	return nil
}
