// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"maps"
	"slices"
	"strings"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// reasonInProgress is upstream's reason for the condition Terminating of a definition
// whose objects are being deleted.
const reasonInProgress = "InstanceDeletionInProgress"

// planFinalizers removes the finalizer from definitions that annex no longer follows.
func (g *group) planFinalizers(p *plan) {
	for _, name := range g.filterMain(g.hasFinalizer) {
		if !isLabelled(g.main[name]) {
			p.removeFinalizer = append(p.removeFinalizer, name)
		}
	}
}

// addFinalizers adds the finalizer to definitions that annex follows already. It returns
// those without it.
func (g *group) addFinalizers(p *plan, names []string) (missingFinalizer []string) {
	for _, name := range names {
		if main := g.main[name]; !g.hasFinalizer(main) {
			missingFinalizer = append(missingFinalizer, name)
			if follows(g.annex[name], main) {
				p.addFinalizer = append(p.addFinalizer, name)
			}
		}
	}
	return missingFinalizer
}

// removeFinalizers removes the finalizer from definitions that annex cannot take over,
// but not from those with an unknown status.
func (g *group) removeFinalizers(p *plan, obstacles map[string]syncStatus) {
	for _, name := range slices.Sorted(maps.Keys(obstacles)) {
		if g.hasFinalizer(g.main[name]) && obstacles[name].status == metav1.ConditionFalse {
			p.removeFinalizer = append(p.removeFinalizer, name)
		}
	}
}

// planDeletions plans the next step for each terminating definition that has annex's
// finalizer: annex's definition is deleted with its objects, then the main cluster stops
// listing the resource, then the finalizer is removed.
func (g *group) planDeletions(p *plan) {
	for _, name := range g.terminating() {
		main := g.main[name]
		if !g.hasFinalizer(main) || !isLabelled(main) {
			continue
		}
		of, step := g.deletion(name)
		switch step {
		case stepRelease:
			p.removeFinalizer = append(p.removeFinalizer, name)
		case stepDelete:
			p.delete = append(p.delete, name)
		}
		if of == nil {
			continue
		}
		if g.annex[name] != nil {
			p.statuses[name] = *of
		}
		// Until then the main cluster reports the deletion of its own objects.
		if step != stepRelease && !hasOwnFinalizer(main) && !hasTerminatingMessage(main, of.message) {
			p.updateStatus = append(p.updateStatus, withTerminating(main, of.message))
		}
	}
	p.unfreeze = len(g.annex) == 0 && len(p.removeFinalizer) > 0 && len(p.removeFinalizer) == len(g.main)
}

// step is the next step for a terminating definition.
type step int

const (
	stepWait step = iota
	stepDelete
	stepRelease
)

// deletion returns the status of a terminating definition with annex's finalizer, and the
// next step.
func (g *group) deletion(name string) (*syncStatus, step) {
	main, current := g.main[name], g.annex[name]
	report := func(format string, args ...any) *syncStatus {
		of := terminating(format, args...)
		return &of
	}
	policy := main.Annotations[hostingv1alpha1.DeletionPolicyAnnotation]
	switch {
	case current != nil && !isFollower(current):
		return nil, stepRelease
	case current == nil:
		if versions := g.stillListed(name); len(versions) > 0 {
			return report("annex has deleted all objects, and waits until the main cluster no longer lists the resource in %s", strings.Join(versions, ", ")), stepWait
		}
		return nil, stepRelease
	case isTerminating(current):
		return report("annex deletes its objects: %s", g.remaining[name]), stepWait
	case !follows(current, main):
		// The definition is from a restored backup of the main cluster.
		of := mainDefinitionDeleted()
		return &of, stepRelease
	case policy == hostingv1alpha1.DeletionPolicyKeep:
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

// stillListed are the versions in which the main cluster lists a resource because annex
// published it. The apiservice controller updates that once annex no longer serves the
// resource, except in a version that is kept for other definitions.
func (g *group) stillListed(name string) []string {
	main := g.main[name]
	var versions []string
	for _, version := range main.Spec.Versions {
		if g.routes[version.Name] == routeAnnex && slices.Contains(g.listed[version.Name], main.Spec.Names.Plural) &&
			(g.isServedInAnnex(version.Name) || !g.isAwaited(version.Name)) {
			versions = append(versions, version.Name)
		}
	}
	return versions
}

func (g *group) isServedInAnnex(version string) bool {
	for _, crd := range g.annex {
		if apiextensionshelpers.HasServedCRDVersion(crd, version) {
			return true
		}
	}
	return false
}

// isAwaited reports whether annex should serve a version.
func (g *group) isAwaited(version string) bool {
	return slices.ContainsFunc(g.labelled(), func(name string) bool { return apiextensionshelpers.HasServedCRDVersion(g.main[name], version) })
}

// hasOwnFinalizer reports whether the main cluster has objects of its own to delete. It
// reports that in the condition that annex writes afterwards.
func hasOwnFinalizer(main *definition) bool {
	return apiextensionshelpers.CRDHasFinalizer(main, apiextensionsv1.CustomResourceCleanupFinalizer)
}

func hasTerminatingMessage(main *definition, message string) bool {
	condition := apiextensionshelpers.FindCRDCondition(main, apiextensionsv1.Terminating)
	return condition != nil && condition.Status == apiextensionsv1.ConditionTrue && condition.Reason == reasonInProgress && condition.Message == message
}

// withTerminating sets the condition that definitions have in any cluster while their
// objects are deleted. With it the main cluster accepts no new objects.
func withTerminating(main *definition, message string) *definition {
	explained := main.DeepCopy()
	apiextensionshelpers.SetCRDCondition(explained, apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: reasonInProgress, Message: message,
	})
	return explained
}
