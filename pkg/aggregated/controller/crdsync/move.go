// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostinglisters "github.com/annex-dev/annex/pkg/generated/listers/hosting/v1alpha1"
)

// movement is what a Migration needs of a group.
type movement int

const (
	// notMoving is a group without a Migration, or with one that needs nothing.
	notMoving movement = iota
	// preparing needs the definitions in annex, although the main cluster stores objects.
	preparing
	// copying needs, in addition, that the main cluster serves the group. The resources are
	// closed in annex, so that returning it hides nothing.
	copying
	// switching needs that requests go to annex.
	switching
	// paused needs that nothing changes.
	paused
	// handingBack needs that the main cluster serves the group.
	handingBack
)

// movementOf returns what an unfinished Migration needs.
func movementOf(migration *hostingv1alpha1.Migration) movement {
	if migration == nil || migration.Status.StartTime == nil {
		return notMoving
	}
	switch phase := migration.Status.Phase; migration.Spec.Operation {
	case hostingv1alpha1.MigrationMove:
		switch phase {
		case hostingv1alpha1.MigrationPending:
			return preparing
		case hostingv1alpha1.MigrationSwitching:
			return switching
		case hostingv1alpha1.MigrationObserving:
			return notMoving
		}
		return copying
	case hostingv1alpha1.MigrationRollback:
		// Before that, clients may have resource versions that the main cluster's are not above.
		if phase == hostingv1alpha1.MigrationSwitching && migration.Status.LastResourceVersion > 0 || phase == hostingv1alpha1.MigrationCleaning {
			return handingBack
		}
	}
	return paused
}

// orderedName is the name of the Migration that annex creates because of the labels.
func orderedName(group string) string { return group + "-hosted" }

// orderedTTL is the time from the end of that Migration to its deletion. If it failed, annex tries again then.
const orderedTTL = 24 * time.Hour

// orderedMigration moves a group because its definitions are labelled.
func orderedMigration(group string) *hostingv1alpha1.Migration {
	return &hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{Name: orderedName(group), Labels: map[string]string{hostingv1alpha1.HostedLabel: "true"}},
		Spec: hostingv1alpha1.MigrationSpec{
			Group: group, Operation: hostingv1alpha1.MigrationMove, TTLSecondsAfterFinished: ptr.To(int32(orderedTTL / time.Second)),
		},
	}
}

// readMigrations reads the Migrations of the group.
func (g *group) readMigrations(migrations hostinglisters.MigrationLister) error {
	all, err := migrations.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list migrations: %w", err)
	}
	for _, m := range all {
		switch {
		case m.Spec.Group != g.name:
		case !m.Status.Phase.Finished():
			if g.migration == nil || m.Status.StartTime != nil {
				g.migration = m
			}
		case m.Name == orderedName(g.name):
			g.ordered = m
		}
	}
	return nil
}

// messageOf returns what a Migration reports.
func messageOf(migration *hostingv1alpha1.Migration) string {
	if complete := meta.FindStatusCondition(migration.Status.Conditions, hostingv1alpha1.MigrationComplete); complete != nil {
		return complete.Message
	}
	return "it has not begun"
}

// isOpen reports whether the main cluster's definitions have the temporary version.
func (g *group) isOpen() bool {
	for _, crd := range g.main {
		if slices.ContainsFunc(crd.Spec.Versions, func(version definitionVersion) bool { return version.Name == hostingv1alpha1.MainCopyVersion }) {
			return true
		}
	}
	return false
}

// planMove plans a group for its Migration. It returns false if there is nothing special to plan.
func (g *group) planMove(p *plan) bool {
	switch movementOf(g.migration) {
	case preparing:
		g.planPreparation(p)
	case copying:
		if g.isRouted() {
			g.planLeaving(p)
		} else {
			g.planPreparation(p)
		}
	case switching:
		for _, name := range g.labelled() {
			if g.annex[name] != nil {
				g.clear(p, name)
			}
		}
		g.reportMove(p)
	case handingBack:
		g.planLeaving(p)
	case paused:
		g.reportMove(p)
	default:
		if !g.isOpen() {
			return false
		}
		g.reportMove(p)
	}
	return true
}

// planPreparation creates the definitions in annex. They are not published.
func (g *group) planPreparation(p *plan) {
	g.withdraw(p)
	if obstacles := g.obstacles(); len(obstacles) > 0 {
		for name, of := range obstacles {
			p.statuses[name] = of
		}
		return
	}
	labelled := g.labelled()
	missing := g.notYetServed(labelled)
	missingFinalizer := g.addFinalizers(p, labelled)
	for _, name := range labelled {
		current := g.annex[name]
		if wanted := desired(g.main[name], current); differs(current, wanted) {
			p.write = append(p.write, wanted)
		}
		if len(missing) > 0 || len(missingFinalizer) > 0 {
			p.statuses[name] = pending("Waiting until annex serves every definition of the group, and each has annex's finalizer; not yet: %s",
				strings.Join(append(missing, missingFinalizer...), ", "))
		}
	}
	g.reportMove(p)
}

// planLeaving makes the main cluster serve the group.
func (g *group) planLeaving(p *plan) {
	g.withdraw(p)
	for _, version := range g.routedTo(routeAnnex) {
		p.giveBack = append(p.giveBack, g.apiServices[version])
	}
	g.reportMove(p)
}

// reportMove names the Migration in the statuses that have no other reason.
func (g *group) reportMove(p *plan) {
	message := "A temporary version of the definition reaches the main cluster's copy"
	if g.migration != nil {
		message = fmt.Sprintf("The Migration %q moves the group", g.migration.Name)
	}
	for _, name := range g.labelled() {
		if _, has := p.statuses[name]; !has {
			p.statuses[name] = beingMoved(message)
		}
	}
}
