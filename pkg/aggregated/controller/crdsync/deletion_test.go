// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubetesting "k8s.io/client-go/testing"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func withOwnFinalizer(crd *definition) {
	crd.Finalizers = append(crd.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer)
}

func annotated(key, value string) change {
	return func(crd *definition) { setAnnotation(crd, key, value) }
}

func unlabelled(crd *definition) { crd.Labels = nil }

// explained is what a plan would write.
func explained(message string) change {
	return func(crd *definition) { crd.Status.Conditions = withTerminating(crd, message).Status.Conditions }
}

func TestPlanDeletions(t *testing.T) {
	t.Parallel()
	const begins = "The definition is being deleted in the main cluster. annex begins to delete its objects"
	policy := func(value string) change { return annotated(hostingv1alpha1.DeletionPolicyAnnotation, value) }
	hosted := to("v1", routeAnnex)
	listed := map[string][]string{"v1": {"widgets"}}
	both := byName(crd(widgets, labelled, leaving), crd(gadgets, labelled))
	for name, tc := range map[string]struct {
		group                          group
		hold, release, explain, delete []string
		// verdict is "<status> <reason>" on the widgets.
		verdict  string
		unfreeze bool
	}{
		"taken over":                {group: group{main: byName(crd(widgets, labelled, withoutFinalizer)), annex: byName(crd(widgets, cleared)), routes: hosted}, hold: []string{widgets}, verdict: "True Synced"},
		"annex has not made it yet": {group: group{main: byName(crd(widgets, labelled, withoutFinalizer)), routes: hosted}, verdict: "True Synced"},
		"annex's is of another":     {group: group{main: byName(crd(widgets, labelled, withoutFinalizer)), annex: byName(crd(widgets, cleared, annotated(hostingv1alpha1.DefinitionUIDAnnotation, "another"))), routes: hosted}, verdict: "True Synced"},
		"about to be taken over": {
			group: group{main: byName(crd(widgets, labelled, withoutFinalizer)), annex: byName(crd(widgets, follower)), migration: migrationIn(hostingv1alpha1.MigrationMove, hostingv1alpha1.MigrationPending)},
			hold:  []string{widgets}, verdict: "Unknown TakingOver",
		},
		"cannot be taken over": {
			group:   group{main: byName(crd(widgets, labelled)), annex: byName(crd(widgets, follower)), observed: map[string]observation{widgets: found}},
			release: []string{widgets}, verdict: "False ObjectsExist",
		},
		"not known whether it can": {group: group{main: byName(crd(widgets, labelled)), annex: byName(crd(widgets, follower)), observed: map[string]observation{widgets: {err: errors.New("timeout")}}}, verdict: "Unknown TakingOver"},
		"unlabelled":               {group: group{main: byName(crd(widgets, withFinalizer)), annex: byName(crd(widgets, cleared)), routes: hosted}, release: []string{widgets}, verdict: "False NotLabelled"},
		"deleted, the main cluster's turn": {
			group:   group{main: byName(crd(widgets, labelled, leaving, withOwnFinalizer)), annex: byName(crd(widgets, cleared)), routes: hosted},
			verdict: "False Terminating",
		},
		"deleted, not reported yet": {
			group:   group{main: byName(crd(widgets, labelled, leaving)), annex: byName(crd(widgets, cleared)), routes: hosted},
			explain: []string{widgets}, delete: []string{widgets}, verdict: "False Terminating",
		},
		"deleted, reported": {
			group:  group{main: byName(crd(widgets, labelled, leaving, explained(begins))), annex: byName(crd(widgets, cleared)), routes: hosted},
			delete: []string{widgets}, verdict: "False Terminating",
		},
		"deleted, policy Delete": {
			group:  group{main: byName(crd(widgets, labelled, leaving, explained(begins), policy("Delete"))), annex: byName(crd(widgets, cleared)), routes: hosted},
			delete: []string{widgets}, verdict: "False Terminating",
		},
		"deleted, policy Keep": {
			group:   group{main: byName(crd(widgets, labelled, leaving, policy("Keep"))), annex: byName(crd(widgets, cleared)), routes: hosted},
			release: []string{widgets}, verdict: "False MainDefinitionDeleted",
		},
		"deleted, policy misspelt": {
			group:   group{main: byName(crd(widgets, labelled, leaving, policy("Retain"))), annex: byName(crd(widgets, cleared)), routes: hosted},
			explain: []string{widgets}, verdict: "False Terminating",
		},
		"deleted, policy Keep too late": {
			group:   group{main: byName(crd(widgets, labelled, leaving, policy("Keep"))), annex: byName(crd(widgets, cleared, leaving)), routes: hosted},
			explain: []string{widgets}, verdict: "False Terminating",
		},
		"deleted, label removed": {
			group:   group{main: byName(crd(widgets, labelled, unlabelled, leaving)), annex: byName(crd(widgets, cleared)), routes: hosted},
			release: []string{widgets}, verdict: "False MainDefinitionDeleted",
		},
		"deleted, annex never held it": {
			group:   group{main: byName(crd(widgets, labelled, withoutFinalizer, leaving)), annex: byName(crd(widgets, cleared)), routes: hosted},
			verdict: "False MainDefinitionDeleted",
		},
		"deleted, but not the one that annex follows": {
			group:   group{main: byName(crd(widgets, labelled, leaving)), annex: byName(crd(widgets, cleared, annotated(hostingv1alpha1.DefinitionUIDAnnotation, "newer"))), routes: hosted},
			release: []string{widgets}, verdict: "False MainDefinitionDeleted",
		},
		"deleted, annex's is a user's": {group: group{main: byName(crd(widgets, labelled, leaving)), annex: byName(crd(widgets)), routes: hosted, listed: listed}, release: []string{widgets}},
		"deleted, objects gone, still listed": {
			group: group{main: byName(crd(widgets, labelled, leaving)), routes: hosted, listed: listed}, explain: []string{widgets},
		},
		"deleted, objects gone, listed with others": {
			group: group{main: both, annex: byName(crd(gadgets, cleared)), routes: hosted, listed: listed}, explain: []string{widgets},
		},
		"deleted, objects gone, only others listed": {
			group:   group{main: both, annex: byName(crd(gadgets, cleared)), routes: hosted, listed: map[string][]string{"v1": {"gadgets"}}},
			release: []string{widgets},
		},
		"deleted, objects gone, kept for others": {
			group:   group{main: both, routes: hosted, listed: listed},
			release: []string{widgets},
		},
		"deleted, objects gone, not listed": {group: group{main: byName(crd(widgets, labelled, leaving)), routes: to("v1", routeMain)}, release: []string{widgets}, unfreeze: true},
		"deleted, annex has other data":     {group: group{main: byName(crd(widgets, labelled, leaving)), routes: to("v1", routeDataReplaced), listed: listed}, release: []string{widgets}, unfreeze: true},
		"missing":                           {group: group{annex: byName(crd(widgets, cleared)), routes: hosted}, verdict: "False MainDefinitionDeleted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &tc.group
			g.complete()
			p := g.plan()
			var explain []string
			for _, crd := range p.updateStatus {
				explain = append(explain, crd.Name)
			}
			var verdict string
			if of, reported := p.statuses[widgets]; reported {
				verdict = string(of.status) + " " + of.reason
			}
			expect.Equal(t, tc.hold, p.addFinalizer, "hold")
			expect.Equal(t, tc.release, p.removeFinalizer, "release")
			expect.Equal(t, tc.explain, explain, "explain")
			expect.Equal(t, tc.delete, p.delete, "delete")
			expect.Equal(t, tc.verdict, verdict, "verdict")
			expect.Equal(t, tc.unfreeze, p.unfreeze, "unfreeze")
		})
	}
}

// TestDeleteAsksTheMainCluster: the cache may lag.
func TestDeleteAsksTheMainCluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.setHosted()
		live := crd(widgets, labelled, leaving, annotated(hostingv1alpha1.DeletionPolicyAnnotation, hostingv1alpha1.DeletionPolicyKeep))
		live.ResourceVersion = "7"
		r.main.PrependReactor("get", "customresourcedefinitions", func(kubetesting.Action) (bool, runtime.Object, error) { return true, live, nil })
		r.redefine(crd(widgets, labelled, leaving))
		time.Sleep(time.Minute)
		synctest.Wait()
		r.followerOf(widgets)
	})
}

// TestMayNotHold: a missing permission is reported, and retried.
func TestMayNotHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		refused := apierrors.NewForbidden(schema.GroupResource{Resource: "customresourcedefinitions"}, widgets, nil)
		var allowed atomic.Bool
		r.main.PrependReactor("update", "customresourcedefinitions", func(action kubetesting.Action) (bool, runtime.Object, error) {
			return action.GetSubresource() == "status" && !allowed.Load(), nil, refused
		})
		r.define(crd(widgets, labelled, withoutFinalizer))
		r.progress(hostingv1alpha1.MigrationPending)
		r.establish(widgets)
		r.wantCondition(widgets, reasonForbidden)
		allowed.Store(true)
		time.Sleep(pollInterval)
		settle()
		if held, err := r.main.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), widgets, metav1.GetOptions{}); err != nil || len(held.Finalizers) != 1 {
			t.Errorf("%v, finalizers %v", err, held.Finalizers)
		}
		r.wantCondition(widgets, reasonMoving)
	})
}

// TestUnfreezesBeforeItReleases: the finalizer of the last definition waits until nothing freezes the group.
func TestUnfreezesBeforeItReleases(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err      error
		released bool
	}{
		"unfrozen": {nil, true}, "not allowed": {apierrors.NewForbidden(schema.GroupResource{}, "", nil), true}, "error": {errors.New("timeout"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := run(t)
				r.unfreezeErr = tc.err
				r.define(crd(widgets, labelled, leaving))
				held := expect.Get(t, r.main.ApiextensionsV1().CustomResourceDefinitions(), widgets)
				if (len(held.Finalizers) == 0) != tc.released {
					t.Errorf("finalizers %v", held.Finalizers)
				}
				if r.unfrozen.Load() == 0 {
					t.Error("it was not unfrozen")
				}
			})
		})
	}
}
