// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package group

import (
	"maps"
	"slices"
	"strings"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// addFinalizers adds the finalizer to definitions that annex follows already. It returns those without it.
func (s *State) addFinalizers(p *Plan, names []string) (missing []string) {
	for _, name := range names {
		if main := s.Main[name]; !s.hasFinalizer(main) {
			missing = append(missing, name)
			if follows(s.Annex[name], main) {
				p.AddFinalizer = append(p.AddFinalizer, name)
			}
		}
	}
	return missing
}

// removeFinalizers removes the finalizer from definitions that annex cannot take over,
// but not from those with an unknown status.
func (s *State) removeFinalizers(p *Plan, obstacles map[string]Status) {
	for _, name := range slices.Sorted(maps.Keys(obstacles)) {
		if s.hasFinalizer(s.Main[name]) && obstacles[name].Status == metav1.ConditionFalse {
			p.RemoveFinalizer = append(p.RemoveFinalizer, name)
		}
	}
}

// planDeletions plans the next step for each terminating definition that has annex's finalizer: annex's definition is
// deleted with its objects, then the main cluster stops listing the resource, then the finalizer is removed.
func (s *State) planDeletions(p *Plan) {
	for _, name := range s.terminating() {
		main := s.Main[name]
		if !s.hasFinalizer(main) || !isLabelled(main) {
			continue
		}
		of, step := s.deletion(name)
		if step == stepRelease {
			p.RemoveFinalizer = append(p.RemoveFinalizer, name)
		}
		if of != nil && s.Annex[name] != nil {
			p.Synced[name] = *of
		}
		// Until then the main cluster reports the deletion of its own objects.
		switch explains := of != nil && step != stepRelease && !hasOwnFinalizer(main) && !hasTerminatingMessage(main, of.Message); {
		case explains:
			p.Explain[name] = of.Message
		case step == stepDelete: // once the main cluster accepts no new objects
			p.Delete = append(p.Delete, name)
		}
	}
	p.Unfreeze = len(s.Annex) == 0 && len(p.RemoveFinalizer) > 0 && len(p.RemoveFinalizer) == len(s.Main)
}

// step is the next step for a terminating definition.
type step int

const (
	stepWait step = iota
	stepDelete
	stepRelease
)

// deletion returns the status of a terminating definition with annex's finalizer, and the next step.
func (s *State) deletion(name string) (*Status, step) {
	main, current := s.Main[name], s.Annex[name]
	report := func(format string, args ...any) *Status {
		of := no(ReasonTerminating, "The definition is being deleted in the main cluster. "+format, args...)
		return &of
	}
	policy := main.Annotations[hostingv1alpha1.DeletionPolicyAnnotation]
	switch {
	case current != nil && !isFollower(current):
		return nil, stepRelease
	case current == nil:
		if versions := s.stillListed(name); len(versions) > 0 {
			return report("annex has deleted all objects, and waits until the main cluster no longer lists the resource in %s", strings.Join(versions, ", ")), stepWait
		}
		return nil, stepRelease
	case isTerminating(current):
		return report("annex deletes its objects: %s", s.Remaining[name]), stepWait
	case !follows(current, main), policy == hostingv1alpha1.DeletionPolicyKeep:
		// One that is not followed is from a restored backup of the main cluster.
		of := mainDefinitionDeleted()
		return &of, stepRelease
	case policy != "" && policy != hostingv1alpha1.DeletionPolicyDelete:
		return report("Annotation %s is %q, and annex waits until it is %s or %s", hostingv1alpha1.DeletionPolicyAnnotation, policy,
			hostingv1alpha1.DeletionPolicyDelete, hostingv1alpha1.DeletionPolicyKeep), stepWait
	case hasOwnFinalizer(main):
		return report("annex waits until the main cluster has deleted the objects of its own, and then deletes those in annex"), stepWait
	default:
		return report("annex begins to delete its objects"), stepDelete
	}
}

// stillListed are the versions in which the main cluster lists a resource because annex published it. That is
// updated once annex no longer serves the resource, except in a version that is kept for other definitions.
func (s *State) stillListed(name string) []string {
	main := s.Main[name]
	var versions []string
	for _, version := range main.Spec.Versions {
		if s.Route(version.Name) == RouteAnnex && isListed(s.APIServices[version.Name], main.Spec.Names.Plural) &&
			(s.IsServed(version.Name) || !s.isAwaited(version.Name)) {
			versions = append(versions, version.Name)
		}
	}
	return versions
}

// hasOwnFinalizer reports whether the main cluster has objects of its own to delete. It
// reports that in the condition that annex writes afterwards.
func hasOwnFinalizer(main *Definition) bool {
	return apiextensionshelpers.CRDHasFinalizer(main, apiextensionsv1.CustomResourceCleanupFinalizer)
}

func hasTerminatingMessage(main *Definition, message string) bool {
	return apiextensionshelpers.IsCRDConditionEquivalent(apiextensionshelpers.FindCRDCondition(main, apiextensionsv1.Terminating), new(Terminating(message)))
}

// Terminating is the condition that definitions have in any cluster while their
// objects are deleted. With it the main cluster accepts no new objects.
func Terminating(message string) apiextensionsv1.CustomResourceDefinitionCondition {
	return apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: "InstanceDeletionInProgress", Message: message,
	}
}
