// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package group

import (
	"errors"
	"maps"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/annex-dev/annex/pkg/aggregated/group/grouptest"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func withOwnFinalizer(crd *Definition) {
	crd.Finalizers = append(crd.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer)
}

func unlabelled(crd *Definition) { crd.Labels = nil }

// explained adds the condition that a plan would write.
func explained(message string) change {
	return func(crd *Definition) { crd.Status.Conditions = append(crd.Status.Conditions, Terminating(message)) }
}

func TestPlanDeletions(t *testing.T) {
	t.Parallel()
	const (
		begins   = "The definition is being deleted in the main cluster. annex begins to delete its objects"
		misspelt = `The definition is being deleted in the main cluster. Annotation annex.dev/deletion-policy is "Retain", and annex waits until it is Delete or Keep`
	)
	policy := func(value string) change { return annotated(hostingv1alpha1.DeletionPolicyAnnotation, value) }
	hosted := routes("v1", RouteAnnex)
	listed := []*APIService{grouptest.Published(groupName, "v1", "widgets:1")}
	both := definitions(crd(widgets, labelled, leaving), crd(gadgets, labelled))
	for name, tc := range map[string]struct {
		given                          given
		hold, release, explain, delete []string
		// verdict is "<status> <reason>" on the widgets.
		verdict  string
		unfreeze bool
	}{
		"taken over":                {given: given{main: definitions(crd(widgets, labelled, withoutFinalizer)), annex: definitions(crd(widgets, cleared)), routes: hosted}, hold: []string{widgets}, verdict: "True Synced"},
		"annex has not made it yet": {given: given{main: definitions(crd(widgets, labelled, withoutFinalizer)), routes: hosted}, verdict: "True Synced"},
		"annex's is of another":     {given: given{main: definitions(crd(widgets, labelled, withoutFinalizer)), annex: definitions(crd(widgets, cleared, annotated(hostingv1alpha1.DefinitionUIDAnnotation, "another"))), routes: hosted}, verdict: "True Synced"},
		"about to be taken over": {
			given: given{main: definitions(crd(widgets, labelled, withoutFinalizer)), annex: definitions(crd(widgets, follower)), migration: migrationIn(hostingv1alpha1.MigrationMove, hostingv1alpha1.MigrationPending)},
			hold:  []string{widgets}, verdict: "Unknown TakingOver",
		},
		"cannot be taken over":             {given: given{main: definitions(crd(widgets, labelled)), annex: definitions(crd(widgets, follower)), observed: map[string]Observation{widgets: found}}, release: []string{widgets}, verdict: "False ObjectsExist"},
		"not known whether it can":         {given: given{main: definitions(crd(widgets, labelled)), annex: definitions(crd(widgets, follower)), observed: map[string]Observation{widgets: {Err: errors.New("timeout")}}}, verdict: "Unknown TakingOver"},
		"unlabelled":                       {given: given{main: definitions(crd(widgets, labelled, unlabelled)), annex: definitions(crd(widgets, cleared)), routes: hosted}, release: []string{widgets}, verdict: "False NotLabelled"},
		"deleted, the main cluster's turn": {given: given{main: definitions(crd(widgets, labelled, leaving, withOwnFinalizer)), annex: definitions(crd(widgets, cleared)), routes: hosted}, verdict: "False Terminating"},
		"deleted, not reported yet":        {given: given{main: definitions(crd(widgets, labelled, leaving)), annex: definitions(crd(widgets, cleared)), routes: hosted}, explain: []string{widgets}, verdict: "False Terminating"},
		"deleted, reported":                {given: given{main: definitions(crd(widgets, labelled, leaving, explained(begins))), annex: definitions(crd(widgets, cleared)), routes: hosted}, delete: []string{widgets}, verdict: "False Terminating"},
		"deleted, policy Delete":           {given: given{main: definitions(crd(widgets, labelled, leaving, explained(begins), policy("Delete"))), annex: definitions(crd(widgets, cleared)), routes: hosted}, delete: []string{widgets}, verdict: "False Terminating"},
		"deleted, policy Keep":             {given: given{main: definitions(crd(widgets, labelled, leaving, policy("Keep"))), annex: definitions(crd(widgets, cleared)), routes: hosted}, release: []string{widgets}, verdict: "False MainDefinitionDeleted"},
		"deleted, policy misspelt":         {given: given{main: definitions(crd(widgets, labelled, leaving, policy("Retain"))), annex: definitions(crd(widgets, cleared)), routes: hosted}, explain: []string{widgets}, verdict: "False Terminating"},
		"deleted, policy misspelt, reported": {
			given: given{main: definitions(crd(widgets, labelled, leaving, policy("Retain"), explained(misspelt))), annex: definitions(crd(widgets, cleared)), routes: hosted}, verdict: "False Terminating",
		},
		"deleted, policy Keep too late": {given: given{main: definitions(crd(widgets, labelled, leaving, policy("Keep"))), annex: definitions(crd(widgets, cleared, leaving)), routes: hosted}, explain: []string{widgets}, verdict: "False Terminating"},
		"deleted, label removed":        {given: given{main: definitions(crd(widgets, labelled, unlabelled, leaving)), annex: definitions(crd(widgets, cleared)), routes: hosted}, release: []string{widgets}, verdict: "False MainDefinitionDeleted"},
		"deleted, annex never held it":  {given: given{main: definitions(crd(widgets, labelled, withoutFinalizer, leaving)), annex: definitions(crd(widgets, cleared)), routes: hosted}, verdict: "False MainDefinitionDeleted"},
		"deleted, but not the one that annex follows": {
			given:   given{main: definitions(crd(widgets, labelled, leaving)), annex: definitions(crd(widgets, cleared, annotated(hostingv1alpha1.DefinitionUIDAnnotation, "newer"))), routes: hosted},
			release: []string{widgets}, verdict: "False MainDefinitionDeleted",
		},
		"deleted, annex's is a user's":              {given: given{main: definitions(crd(widgets, labelled, leaving)), annex: definitions(crd(widgets)), apiServices: listed}, release: []string{widgets}},
		"deleted, objects gone, still listed":       {given: given{main: definitions(crd(widgets, labelled, leaving)), apiServices: listed}, explain: []string{widgets}},
		"deleted, objects gone, listed with others": {given: given{main: both, annex: definitions(crd(gadgets, cleared)), apiServices: listed}, explain: []string{widgets}},
		"deleted, objects gone, only others listed": {given: given{main: both, annex: definitions(crd(gadgets, cleared)), apiServices: []*APIService{grouptest.Published(groupName, "v1", "gadgets:1")}}, release: []string{widgets}},
		"deleted, objects gone, kept for others":    {given: given{main: both, apiServices: listed}, release: []string{widgets}},
		"deleted, objects gone, not listed":         {given: given{main: definitions(crd(widgets, labelled, leaving)), routes: routes("v1", RouteMain)}, release: []string{widgets}, unfreeze: true},
		"deleted, annex has other data":             {given: given{main: definitions(crd(widgets, labelled, leaving)), routes: routes("v1", RouteDataReplaced)}, release: []string{widgets}, unfreeze: true},
		"missing":                                   {given: given{annex: definitions(crd(widgets, cleared)), routes: hosted}, verdict: "False MainDefinitionDeleted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := tc.given.state().Plan()
			var verdict string
			if of, reported := p.Synced[widgets]; reported {
				verdict = string(of.Status) + " " + of.Reason
			}
			expect.Equal(t, tc.hold, p.AddFinalizer, "hold")
			expect.Equal(t, tc.release, p.RemoveFinalizer, "release")
			expect.Equal(t, tc.explain, slices.Sorted(maps.Keys(p.Explain)), "explain")
			expect.Equal(t, tc.delete, p.Delete, "delete")
			expect.Equal(t, tc.verdict, verdict, "verdict")
			expect.Equal(t, tc.unfreeze, p.Unfreeze, "unfreeze")
		})
	}
}
