// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/annex-dev/annex/pkg/aggregated/group"
	"github.com/annex-dev/annex/pkg/aggregated/group/grouptest"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// local returns the APIService that kube-apiserver makes for the widgets.
func local() []runtime.Object { return []runtime.Object{grouptest.Local(groupName, "v1")} }

// TestTakesOver follows a group from its label to the switch, and back when that is undone.
func TestTakesOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, local())
		f.settled()
		f.prepare()
		f.progress(hostingv1alpha1.MigrationCopying)
		wait(time.Minute)
		f.wantWrites("not switched")
		f.wantPublished(widgets, "False", "GroupInMain", widgets)
		if f.isRecorded() {
			t.Error("recorded before the switch")
		}
		f.progress(hostingv1alpha1.MigrationSwitching)
		f.wantWrites("recorded", "update "+v1Name)
		f.wantPublished(widgets, "False", "Unavailable", group.NotCheckedMessage)
		f.set(func() { f.lags = true })
		f.setAvailable(v1Name, apiregistrationv1.ConditionTrue, "")
		f.wantPublished(widgets, "False", "Unavailable", "")
		f.set(func() { f.lags = false })
		wait(routingProbeInterval)
		f.wantPublished(widgets, "True", "Published", "v1")

		// It is withdrawn before the APIService is given back.
		f.aggregator.PrependReactor("delete", "apiservices", func(clienttesting.Action) (bool, runtime.Object, error) {
			if of := expect.Get(t, f.resources, widgets).Status.Takeover; of != nil {
				t.Errorf("given back while the takeover is %+v", of)
			}
			return false, nil, nil
		})
		f.progress(hostingv1alpha1.MigrationFollowing)
		f.wantWrites("given back", "delete "+v1Name)
		f.wantPublished(widgets, "False", "GroupInMain", widgets)
		f.progress(hostingv1alpha1.MigrationFailed)
		f.wantSynced(widgets, group.ReasonMoveFailed)
		wait(time.Minute)
		f.wantWrites("failed")
	})
}

// TestWithdrawsFirst: if a takeover is not withdrawn, its APIService is not given back.
func TestWithdrawsFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, local())
		f.settled()
		f.prepare()
		f.progress(hostingv1alpha1.MigrationSwitching)
		f.writes()
		var failing atomic.Bool
		failing.Store(true)
		f.hosting.PrependReactor("patch", "hostedresources", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return failing.Load() && action.GetSubresource() == "status", nil, apierrors.NewServiceUnavailable("not now")
		})
		f.progress(hostingv1alpha1.MigrationFollowing)
		f.wantWrites("while it cannot be withdrawn")
		failing.Store(false)
		wait(time.Minute)
		f.wantWrites("withdrawn", "delete "+v1Name)
	})
}

func TestFollows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, local())
		f.settled()
		f.setHosted()
		f.redefine(crd(widgets, labelled, grouptest.ShortName))
		if got := expect.Get(t, f.annex, widgets).Spec.Names.ShortNames; len(got) != 1 {
			t.Errorf("short names %v, want what the main cluster has", got)
		}
		requests := func() int {
			return len(f.annexClient.Actions()) + len(f.hosting.Actions()) + len(f.mainObjects.Actions()) + len(f.aggregator.Actions())
		}
		before := requests()
		wait(time.Hour)
		if after := requests(); after != before {
			t.Errorf("%d requests in an hour without news", after-before)
		}
		// A route that is lost is taken over again.
		expect.Delete(t, f.apiServices, v1Name)
		synctest.Wait()
		f.wantWrites("lost", "delete "+v1Name, "create "+v1Name)
	})
}

func TestObjectsFirstThenNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, local())
		objects := f.mainObjects.Resource(widgetsV1).Namespace("ns")
		_, err := objects.Create(t.Context(), widget("old"), metav1.CreateOptions{})
		expect.NoError(t, err)
		f.run()
		f.define(crd(widgets, labelled))
		f.wantSynced(widgets, group.ReasonObjectsExist)
		resource := expect.Get(t, f.resources, widgets)
		if resource.Annotations[hostingv1alpha1.DefinitionFromAnnotation] == "" {
			t.Error("nothing keeps the hosted resource")
		}
		if store := resource.Spec.StoreName; store != "" {
			t.Errorf("it is on store %q, which the scheduler has not chosen", store)
		}
		f.redefine(crd(widgets))
		if left := expect.Get(t, f.resources, widgets); group.SyncedOf(left) != nil || len(left.Annotations) > 0 || left.Labels[hostingv1alpha1.AutomanagedLabel] == "" {
			t.Errorf("it still has %+v with annotations %v and labels %v", group.SyncedOf(left), left.Annotations, left.Labels)
		}
		f.redefine(crd(widgets, labelled))
		expect.NoError(t, objects.Delete(t.Context(), "old", metav1.DeleteOptions{}))
		wait(pollInterval + time.Second)
		f.wantSynced(widgets, group.ReasonTakingOver)
		f.ordered()
	})
}

// TestOrdersOnce: a Migration that failed is not repeated until it is deleted. One that completed does not
// count: the group was rolled back since.
func TestOrdersOnce(t *testing.T) {
	t.Parallel()
	for phase, again := range map[hostingv1alpha1.MigrationPhase]bool{
		hostingv1alpha1.MigrationFailed: false, hostingv1alpha1.MigrationCanceled: false, hostingv1alpha1.MigrationCompleted: true,
	} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, local())
				f.run()
				f.define(crd(widgets, labelled))
				f.progress(phase)
				wait(time.Hour)
				if made := f.ordered().Status.Phase == ""; made != again {
					t.Errorf("another Migration: %t, want %t", made, again)
				}
				if again {
					return
				}
				f.wantSynced(widgets, group.ReasonMoveFailed)
				expect.Delete(t, f.hosting.HostingV1alpha1().Migrations(), groupName+"-hosted")
				wait(time.Second)
				if f.ordered().Status.Phase != "" {
					t.Error("it is not tried again")
				}
			})
		})
	}
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, local())
		f.settled()
		f.setHosted()
		var refusing atomic.Bool
		refusing.Store(true)
		f.annexClient.PrependReactor("update", "customresourcedefinitions", func(clienttesting.Action) (bool, runtime.Object, error) {
			invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "CustomResourceDefinition"}, widgets, field.ErrorList{field.Invalid(field.NewPath("status", "storedVersions"), "v1", "must appear in spec")})
			return refusing.Load(), nil, invalid
		})
		f.redefine(crd(widgets, labelled, grouptest.ShortName))
		f.wantSynced(widgets, group.ReasonRejected)
		refusing.Store(false)
		wait(rejectedInterval + time.Second)
		f.wantSynced(widgets, group.ReasonSynced)
	})
}

// TestDefinitionOfOwnGroup: it is refused, and changes nothing of how annex is reached.
func TestDefinitionOfOwnGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, local())
		f.annexClient.PrependReactor("create", "customresourcedefinitions", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("compiled into annex"))
		})
		f.settled()
		f.define(crd("widgets.hosting.annex.dev", labelled, versions("v9")))
		wait(time.Minute)
		f.wantSynced("widgets.hosting.annex.dev", group.ReasonRejected)
		f.wantWrites("refused")
	})
}

// TestServesBeforeItIsRecorded: annex has to serve a version before requests for it go there.
func TestServesBeforeItIsRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, local())
		f.settled()
		f.setHosted()
		var failing atomic.Bool
		failing.Store(true)
		f.annexObjects.PrependReactor("get", "widgets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return failing.Load(), nil, apierrors.NewServiceUnavailable("not yet")
		})
		f.redefine(crd(widgets, labelled, versions("v1", "v2")))
		follower := expect.Get(t, f.annex, widgets)
		follower.Generation++ // the fake clients count none
		expect.Update(t, f.annex, follower)
		wait(time.Second)
		if f.isRecorded() {
			t.Error("recorded although annex does not serve it")
		}
		failing.Store(false)
		wait(time.Minute)
		if !f.isRecorded() {
			t.Error("not recorded although annex serves it")
		}
	})
}

// TestDeletes: annex's definition goes with the main cluster's, unless that has changed: the cache may lag.
func TestDeletes(t *testing.T) {
	t.Parallel()
	for name, changed := range map[string]bool{"deleted": false, "changed meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, local())
				f.settled()
				f.setHosted()
				live := crd(widgets, labelled, grouptest.Leaving)
				if changed {
					live.ResourceVersion = "7"
				}
				f.mainClient.PrependReactor("get", "customresourcedefinitions", func(clienttesting.Action) (bool, runtime.Object, error) { return true, live, nil })
				f.redefine(crd(widgets, labelled, grouptest.Leaving))
				wait(time.Minute)
				if _, err := f.annex.Get(t.Context(), widgets, metav1.GetOptions{}); apierrors.IsNotFound(err) == changed {
					t.Errorf("changed %t, annex's definition: %v", changed, err)
				}
			})
		})
	}
}

// TestMayNotHold: a missing permission is reported, and retried.
func TestMayNotHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, local())
		f.run()
		refused := apierrors.NewForbidden(schema.GroupResource{Resource: "customresourcedefinitions"}, widgets, nil)
		var allowed atomic.Bool
		f.mainClient.PrependReactor("update", "customresourcedefinitions", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return action.GetSubresource() == "status" && !allowed.Load(), nil, refused
		})
		f.define(crd(widgets, labelled, grouptest.WithoutFinalizer))
		f.progress(hostingv1alpha1.MigrationPending)
		f.establish(widgets)
		f.wantSynced(widgets, group.ReasonForbidden)
		allowed.Store(true)
		wait(pollInterval + time.Second)
		if held := expect.Get(t, f.main, widgets); len(held.Finalizers) != 1 {
			t.Errorf("finalizers %v", held.Finalizers)
		}
		f.wantSynced(widgets, group.ReasonMoving)
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
				f := newFixture(t, local())
				f.unfreezeErr = tc.err
				f.run()
				f.define(crd(widgets, labelled, grouptest.Leaving))
				if held := expect.Get(t, f.main, widgets); (len(held.Finalizers) == 0) != tc.released {
					t.Errorf("finalizers %v", held.Finalizers)
				}
				f.set(func() {
					if f.unfrozen == 0 {
						t.Error("it was not unfrozen")
					}
				})
			})
		})
	}
}
