// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package group

import (
	"maps"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// movement names the state of a group that its Migration needs.
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

// movement returns what the unfinished Migration needs.
func (s *State) movement() movement {
	if s.Migration == nil || s.Migration.Status.StartTime == nil {
		return notMoving
	}
	switch status := s.Migration.Status; s.Migration.Spec.Operation {
	case hostingv1alpha1.MigrationMove:
		switch status.Phase {
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
		if status.Phase == hostingv1alpha1.MigrationSwitching && status.LastResourceVersion > 0 || status.Phase == hostingv1alpha1.MigrationCleaning {
			return handingBack
		}
	}
	return paused
}

// isWithheld reports whether the Migration forbids that annex gets requests for the group.
func (s *State) isWithheld() bool {
	return slices.Contains([]movement{preparing, copying, handingBack}, s.movement())
}

// IsSwitching reports whether the Migration waits until annex gets the requests, whose resources are closed.
func (s *State) IsSwitching() bool { return s.movement() == switching }

// IsStale reports whether the unfinished Migration needs something else by now.
func (s *State) IsStale(now []*Migration) bool {
	return New(s.Name, s.Identity, Objects{Migrations: now}).movement() != s.movement()
}

// IsRelevant reports whether an update of a Migration may change the plan.
func IsRelevant(before, after *Migration) bool {
	old, current := &State{Migration: before}, &State{Migration: after}
	return old.movement() != current.movement() || before.Status.Phase != after.Status.Phase || before.Status.StartTime.IsZero()
}

// orderedName is the name of the Migration that annex creates because of the labels.
func orderedName(group string) string { return group + "-hosted" }

// orderedTTL is the time from the end of that Migration to its deletion. If it failed, annex tries again then.
const orderedTTL = 24 * time.Hour

// orderedMigration moves a group because its definitions are labelled.
func orderedMigration(group string) *Migration {
	return &Migration{
		ObjectMeta: metav1.ObjectMeta{Name: orderedName(group), Labels: map[string]string{hostingv1alpha1.HostedLabel: "true"}},
		Spec: hostingv1alpha1.MigrationSpec{
			Group: group, Operation: hostingv1alpha1.MigrationMove, TTLSecondsAfterFinished: new(int32(orderedTTL / time.Second)),
		},
	}
}

// messageOf returns what a Migration reports.
func messageOf(migration *Migration) string {
	if complete := meta.FindStatusCondition(migration.Status.Conditions, hostingv1alpha1.MigrationComplete); complete != nil {
		return complete.Message
	}
	return "it has not begun"
}

// isOpen reports whether the main cluster's definitions have the temporary version.
func (s *State) isOpen() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(s.Main)), func(crd *Definition) bool {
		return slices.ContainsFunc(crd.Spec.Versions, func(version apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return version.Name == hostingv1alpha1.MainCopyVersion // not served at first
		})
	})
}

// planMove plans a group for its Migration. It returns false if there is nothing special to plan.
func (s *State) planMove(p *Plan) bool {
	movement := s.movement()
	switch {
	case movement == handingBack, movement == copying && s.isRouted():
		// The main cluster gets the group back.
		p.Withdraw = s.recorded()
		for _, version := range s.routedTo(RouteAnnex, RouteReverted) {
			p.GiveBack = append(p.GiveBack, s.APIServices[version])
		}
	case movement == preparing, movement == copying:
		p.Withdraw = s.recorded()
		if !s.planPreparation(p) {
			return true
		}
	case movement == switching:
		for _, of := range s.Migration.Status.Resources { // one that was added since was not copied
			if slices.Contains(s.labelled(), of.Name) && s.Annex[of.Name] != nil {
				s.record(p, of.Name)
			}
		}
	case movement == notMoving && !s.isOpen():
		return false
	}
	s.reportMove(p)
	return true
}

// planPreparation creates the definitions in annex. They are not published. It returns false if there are obstacles.
func (s *State) planPreparation(p *Plan) bool {
	if obstacles := s.applyToGroup(s.causes()); len(obstacles) > 0 {
		p.Synced = obstacles
		return false
	}
	labelled := s.labelled()
	missing := append(s.notYetServed(labelled), s.addFinalizers(p, labelled)...)
	for _, name := range labelled {
		current := s.Annex[name]
		if wanted := desired(s.Main[name], current); differs(current, wanted) {
			p.Write = append(p.Write, wanted)
		}
		if len(missing) > 0 {
			p.Synced[name] = pending("Waiting until annex serves every definition of the group, and each has annex's finalizer; not yet: %s", strings.Join(missing, ", "))
		}
	}
	return true
}

// reportMove names the Migration in the statuses that have no other reason.
func (s *State) reportMove(p *Plan) {
	of := beingMoved("A temporary version of the definition reaches the main cluster's copy")
	if s.Migration != nil {
		of = beingMoved("The Migration %q moves the group", s.Migration.Name)
	}
	for _, name := range s.labelled() {
		if _, has := p.Synced[name]; !has {
			p.Synced[name] = of
		}
	}
}
