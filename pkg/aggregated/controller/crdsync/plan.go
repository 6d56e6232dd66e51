// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// plan lists the writes for a group.
type plan struct {
	// needsObjectCount means that nothing may happen before annex's objects are counted.
	needsObjectCount bool
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

// watchRequests returns the resources that only objects in the main cluster could keep
// from being taken over.
func (g *group) watchRequests() []watchRequest {
	var requests []watchRequest
	isHosted := g.isHosted()
	if movementOf(g.migration) != notMoving || g.isOpen() || g.hasMainCopy() {
		return nil // objects are expected
	}
	if !isHosted && len(g.obstacles()) > 0 || isHosted && len(g.unlabelled()) > 0 {
		return nil
	}
	for _, name := range g.labelled() {
		versions := g.servedBy(name, routeMain)
		if len(versions) == 0 || isHosted && g.ownObstacle(name) != nil {
			continue
		}
		requests = append(requests, g.watchRequestFor(name, versions))
	}
	return requests
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
	if late := g.lateObject(); late != "" || g.returning && g.isHosted() {
		if g.annexHasObjects == nil {
			return &plan{needsObjectCount: true}
		}
		if !*g.annexHasObjects {
			g.planReturn(p, late)
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

// lateObject returns a definition of which an object appeared in the main cluster during
// the takeover, and whose requests are routed to annex now.
func (g *group) lateObject() string {
	for _, name := range slices.Sorted(maps.Keys(g.observed)) {
		if of := g.observed[name]; of.appeared && g.main[name] != nil && len(g.switchedVersions(of)) > 0 {
			return name
		}
	}
	return ""
}

// switchedVersions are the observed versions that are routed to annex now.
func (g *group) switchedVersions(of observation) []string {
	var versions []string
	for _, version := range of.versions {
		if g.routes[version] == routeAnnex {
			versions = append(versions, version)
		}
	}
	return versions
}

// planReturn returns all versions to the main cluster; annex stores no object of the
// group. If another replica began this, its status stays.
func (g *group) planReturn(p *plan, late string) {
	for _, version := range g.routedTo(routeAnnex) {
		p.giveBack = append(p.giveBack, g.apiServices[version])
	}
	for _, name := range g.labelled() {
		before, reported := g.reported[name]
		switch {
		case late != "":
			p.statuses[name] = objectsAppeared(late, g.observed[late].object)
		case reported && before.Reason == reasonObjectsAppeared:
			p.statuses[name] = syncStatus{status: before.Status, reason: before.Reason, message: before.Message}
		default:
			p.statuses[name] = pending("annex gives the group back to the main cluster")
		}
	}
	g.withdraw(p)
}

// withdraw withdraws the takeover of every definition.
func (g *group) withdraw(p *plan) {
	for _, name := range g.followers() {
		if g.isCleared(name) {
			p.withdraw = append(p.withdraw, name)
		}
	}
}

func (g *group) clear(p *plan, name string) {
	if !g.isCleared(name) {
		p.clear = append(p.clear, name)
	}
}

// planFresh plans a group without routes to annex.
func (g *group) planFresh(p *plan) {
	labelled := g.labelled()
	if len(labelled) == 0 {
		// Without definitions in the main cluster there is nothing to take over, and
		// clearances have no effect.
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
	missingFinalizer := g.addFinalizers(p, labelled)
	if len(missing) > 0 || len(missingFinalizer) > 0 {
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
		case len(missingFinalizer) > 0:
			p.statuses[name] = pending("Waiting until annex's finalizer is on every definition of the group; not yet: %s", strings.Join(missingFinalizer, ", "))
		default:
			g.clear(p, name)
			p.statuses[name] = pending("Waiting until the main cluster sends requests to annex")
		}
	}
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

// objectsInTheWay returns statuses for all labelled definitions if the main cluster
// stores objects of any, or might.
func (g *group) objectsInTheWay() map[string]syncStatus {
	own := map[string]syncStatus{}
	for _, name := range g.labelled() {
		if of := g.objectsOf(name); of != nil {
			own[name] = *of
		}
	}
	return g.applyToGroup(own)
}

// objectsOf returns the status of a definition of which the main cluster stores objects,
// or might; nil if it stores none.
func (g *group) objectsOf(name string) *syncStatus {
	if g.hasMainCopy() {
		return nil
	}
	var of syncStatus
	switch seen, looked := g.observed[name]; {
	case !looked:
		of = pending("annex does not know yet whether the main cluster stores objects of this resource")
	case apierrors.IsForbidden(seen.err):
		of = listForbidden(g.name, g.labelled(), seen.err)
	case seen.err != nil:
		of = pending("annex does not know yet whether the main cluster stores objects of this resource: %v", seen.err)
	case seen.appeared:
		of = objectsAppeared(name, seen.object)
	case seen.object != "" && len(g.routedTo(routeAnnex)) > 0:
		of = newObjectsExist(seen.object)
	case seen.object != "":
		of = objectsExist(g.name, seen.object)
	default:
		return nil
	}
	return &of
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
		case reasonObjectsExist, reasonObjectsAppeared, reasonTakingOver:
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

// planHosted plans a group with at least one version routed to annex. Each definition is
// followed separately; versions that the main cluster still serves are cleared only if
// that is safe for all.
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

// statusOf returns the status of a definition in a hosted group, and whether it permits a
// takeover of versions that the main cluster still serves.
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

// hiddenObject is the status of a definition with an object in the main cluster that
// requests no longer reach. After the watch has ended, the previous status is the only
// record of it.
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
