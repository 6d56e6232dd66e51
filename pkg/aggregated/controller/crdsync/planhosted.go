// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import "strings"

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
