// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/annex-dev/annex/pkg/aggregated/group"
	"github.com/annex-dev/annex/pkg/aggregated/group/grouptest"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestHostingComesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, crd(widgets, versions("v1", "v2")), crd("things.other.org"))
		f.unproven = errors.New("bad gateway")
		f.run()
		f.wantWrites("at start", "create "+hostingName)
		f.wantPublished(widgets, "False", "WaitingForAnnex", group.NotCheckedMessage)
		wait(time.Minute)
		f.setAvailable(hostingName, apiregistrationv1.ConditionFalse, "connection refused")
		wait(time.Minute)
		f.wantPublished(widgets, "False", "WaitingForAnnex", "connection refused")
		f.wantWrites("while it is not reached", slices.Repeat([]string{"nudge " + hostingName}, maxRechecks)...)
		f.setAvailable(hostingName, apiregistrationv1.ConditionTrue, "")
		wait(time.Minute)
		f.wantPublished(widgets, "False", "WaitingForAnnex", "bad gateway")
		f.set(func() { f.stranger, f.unproven = "another-uid", nil })
		wait(time.Minute)
		f.wantPublished(widgets, "False", "WaitingForAnnex", "Another annex answers")

		f.set(func() { f.stranger = "" })
		wait(probeInterval)
		f.wantWrites("before it settled")
		wait(DefaultSettlePeriod - time.Second)
		f.setAvailable(hostingName, apiregistrationv1.ConditionFalse, "one bad moment")
		f.setAvailable(hostingName, apiregistrationv1.ConditionTrue, "")
		wait(DefaultSettlePeriod - time.Second)
		f.wantWrites("before it settled for long enough")
		wait(time.Second)
		f.wantWrites("settled", "create v1.example.com", "create v2.example.com", "create v1.other.org")

		f.setAvailable(v1Name, apiregistrationv1.ConditionTrue, "")
		f.wantPublished(widgets, "False", "Unavailable", "v2: "+group.NotCheckedMessage)
		f.setAvailable("v2.example.com", apiregistrationv1.ConditionTrue, "")
		f.wantPublished(widgets, "True", "Published", "v2, v1")
		f.setAvailable(v1Name, apiregistrationv1.ConditionFalse, "no route to host")
		f.wantPublished(widgets, "False", "Unavailable", "no route to host")
		f.wantPublished("things.other.org", "False", "Unavailable", group.NotCheckedMessage)
	})
}

func TestHealing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, crd(widgets))
		f.settled()
		wait(writeInterval)
		right := expect.Get(t, f.apiServices, v1Name)
		for what, edit := range map[string]func(*group.APIService){
			"wrong port":    func(a *group.APIService) { a.Spec.Service.Port = new(int32(1)) },
			"wrong service": func(a *group.APIService) { a.Spec.Service.Name = "other" },
			"wrong CA":      func(a *group.APIService) { a.Spec.CABundle = []byte("other") },
			"not verified":  func(a *group.APIService) { a.Spec.CABundle, a.Spec.InsecureSkipTLSVerify = nil, true },
			"local":         func(a *group.APIService) { a.Spec.CABundle, a.Spec.Service = nil, nil },
			"automanaged": func(a *group.APIService) {
				metav1.SetMetaDataLabel(&a.ObjectMeta, "kube-aggregator.kubernetes.io/automanaged", "true")
			},
		} {
			f.edit(v1Name, edit)
			f.wantWrites(what, "update "+v1Name, "update "+v1Name)
			expect.Equal(t, right.Spec, expect.Get(t, f.apiServices, v1Name).Spec, "%s: not put right", what)
			wait(writeInterval)
		}
		expect.Delete(t, f.apiServices, v1Name)
		synctest.Wait()
		f.wantWrites("deleted", "delete "+v1Name, "create "+v1Name)

		// Repeated changes are not reverted immediately each time.
		for range 100 {
			f.edit(v1Name, func(a *group.APIService) { a.Spec.Service.Port = new(int32(1)) })
			wait(50 * time.Millisecond)
		}
		wait(time.Second)
		if again := len(f.writes()) - 100; again < 5 || again > 7 {
			t.Errorf("put right %d times in 6 s", again)
		}
		expect.Equal(t, right.Spec, expect.Get(t, f.apiServices, v1Name).Spec, "not put right in the end")
		// Users may change priorities.
		f.edit(v1Name, func(a *group.APIService) { a.Spec.GroupPriorityMinimum = 1500 })
		f.wantWrites("another priority", "update "+v1Name)
	})
}

func TestCABundleGoesToHostingFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, crd(widgets))
		f.settled()
		wait(writeInterval)
		f.bundle.change("new CA")
		synctest.Wait()
		f.wantWrites("at once", "update "+hostingName)
		f.setAvailable(hostingName, apiregistrationv1.ConditionFalse, "x509: unknown authority")
		wait(time.Minute)
		f.wantWrites("while the new one does not work", slices.Repeat([]string{"nudge " + hostingName}, maxRechecks)...)
		f.bundle.change("right CA")
		synctest.Wait()
		f.setAvailable(hostingName, apiregistrationv1.ConditionTrue, "")
		wait(staleStatusPeriod + probeInterval)
		f.wantWrites("when it works", "update "+hostingName, "update "+v1Name)
		expect.Equal(t, "right CA", string(expect.Get(t, f.apiServices, v1Name).Spec.CABundle))
	})
}

func TestComingBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hosting, v1 := grouptest.Published("hosting.annex.dev", "v1alpha1", ""), grouptest.Published(groupName, "v1", "widgets:0")
		delete(hosting.Annotations, hostingv1alpha1.ResourcesAnnotation)
		for _, of := range []*group.APIService{hosting, v1} {
			grouptest.Available(of, apiregistrationv1.ConditionFalse, "Checked", "refused")
		}
		f := newFixture(t, []runtime.Object{hosting, v1}, crd(widgets))
		f.run()
		f.wantWrites("at once")
		wait(firstRecheckDelay)
		f.wantWrites("annex's own group first", "nudge "+hostingName)
		wait(2 * firstRecheckDelay)
		f.wantWrites("again", "nudge "+hostingName)
		f.setAvailable(hostingName, apiregistrationv1.ConditionTrue, "")
		f.wantWrites("the others as soon as annex is reached", "nudge "+v1Name)
		f.setAvailable(v1Name, apiregistrationv1.ConditionTrue, "")
		wait(time.Minute)
		f.wantWrites("when all is well")
		f.wantPublished(widgets, "True", "Published", "v1")
	})
}

// TestProbesAreBounded: a takeover may have to be withdrawn meanwhile.
func TestProbesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, crd(widgets, versions("v1", "v2", "v3")))
		f.settled()
		f.set(func() { f.hangs = true })
		for _, name := range []string{"v1", "v2", "v3"} {
			current := grouptest.Available(expect.Get(t, f.apiServices, name+"."+groupName), apiregistrationv1.ConditionTrue, "Checked", "")
			_, err := f.apiServices.UpdateStatus(t.Context(), current, metav1.UpdateOptions{})
			expect.NoError(t, err)
		}
		// The first reconcile may have seen one of them, and the next has seen all.
		time.Sleep(2*probeTimeout + time.Second)
		f.wantPublished(widgets, "False", "Unavailable", "v3: The main cluster does not reach annex: context deadline exceeded")
	})
}

func TestTheSecondAnnexPublishesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, []runtime.Object{grouptest.Elsewhere("hosting.annex.dev", "v1alpha1", "first", "annex")}, crd(widgets))
		f.run()
		wait(time.Minute)
		f.wantWrites("the second annex")
		f.wantPublished(widgets, "False", "ForeignAPIService", "Service first/annex")
	})
}

func TestRemoving(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kept, left := grouptest.Published("kept.org", "v1", ""), grouptest.Published("left.org", "v1", "")
		kept.Annotations[hostingv1alpha1.PublishedStoreAnnotation] = "old-data"
		f := newFixture(t, []runtime.Object{kept, left}, crd(widgets), crd(gadgets, versions("v1", "v2")))
		f.run()
		f.wantWrites("what was left behind", "delete v1.left.org", "create "+hostingName)
		f.setAvailable(hostingName, apiregistrationv1.ConditionTrue, "")
		wait(DefaultSettlePeriod)
		f.wantWrites("settled", "create v1.example.com", "create v2.example.com")
		expect.Delete(t, f.annex, gadgets)
		synctest.Wait()
		f.wantWrites("one of two definitions gone", "delete v2.example.com")
		f.wantPublished(gadgets, "False", "NotServed", gadgets)
		expect.Delete(t, f.annex, widgets)
		synctest.Wait()
		f.wantWrites("both definitions gone", "delete v1.example.com")
	})
}

// TestALaggingCacheChangesNothing: what is about to be written is checked with annex's API.
func TestALaggingCacheChangesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil, crd(widgets, grouptest.Follower))
	expect.Create(t, f.main, crd(widgets, labelled))
	r := &reconciler{Config: Config{MainDefinitions: f.main, AnnexDefinitions: f.annex, AnnexHostedResources: f.resources, MainAPIServices: f.apiServices}}
	leftover := grouptest.Published(groupName, "v1", "")
	s := group.New(groupName, group.Identity{PublishedBy: grouptest.PublishedBy, Store: grouptest.Store}, group.Objects{
		Main: []*group.Definition{crd(widgets, labelled)}, APIServices: []*group.APIService{leftover},
	})
	expect.NoError(t, r.remove(t.Context(), s, leftover), "annex serves it")
	expect.Error(t, r.confirm(t.Context(), s), "no longer recorded")
	failing := apiextensionsfake.NewClientset()
	failing.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("shutting down")
	})
	r.AnnexDefinitions = failing.ApiextensionsV1().CustomResourceDefinitions()
	expect.Error(t, r.remove(t.Context(), s, leftover), "shutting down")
	expect.Error(t, r.confirm(t.Context(), s), "shutting down")
	f.wantWrites("while it is not confirmed")
}

// TestAStalePlanChangesNothing: the Migration has advanced since.
func TestAStalePlanChangesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil, crd(widgets, grouptest.Follower))
	r := &reconciler{Config: Config{AnnexMigrations: f.hosting.HostingV1alpha1().Migrations(), AnnexHostedResources: f.resources, MainAPIServices: f.apiServices}}
	now := metav1.Now()
	s := group.New(groupName, group.Identity{}, group.Objects{Migrations: []*group.Migration{{
		Spec: hostingv1alpha1.MigrationSpec{Group: groupName}, Status: hostingv1alpha1.MigrationStatus{StartTime: &now},
	}}})
	for _, p := range []*group.Plan{
		{Withdraw: []string{widgets}}, {Record: []string{widgets}}, {GiveBack: []*group.APIService{grouptest.Published(groupName, "v1", "")}},
	} {
		_, err := r.act(t.Context(), s, p)
		expect.Error(t, err, "it has advanced since")
	}
	f.wantWrites("while it is stale")
}

func TestStoppingChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, crd(widgets))
		stop := f.run()
		f.setAvailable(hostingName, apiregistrationv1.ConditionTrue, "")
		wait(DefaultSettlePeriod)
		f.writes()
		before := expect.Get(t, f.apiServices, v1Name)
		stop()
		f.wantWrites("stopped")
		expect.Equal(t, before, expect.Get(t, f.apiServices, v1Name), "changed")
		// The next term has nothing to write, and waits for nothing to mend.
		f.run()
		f.edit(v1Name, func(a *group.APIService) { a.Spec.CABundle = []byte("other") })
		f.wantWrites("next term", "update "+v1Name, "update "+v1Name)
	})
}

func TestAnAPIServiceThatIsNotWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, crd(widgets))
		f.aggregator.PrependReactor("create", "apiservices", func(action clienttesting.Action) (bool, runtime.Object, error) {
			name := action.(clienttesting.CreateAction).GetObject().(*group.APIService).Name
			return name != hostingName, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "apiservices"}, name, errors.New("no such right"))
		})
		f.settled()
		f.wantPublished(widgets, "False", "WriteFailed", "no such right")
	})
}

func TestWithoutCertificatesNothingIsPublished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, crd(widgets))
		f.bundle.change("")
		f.run()
		wait(time.Minute)
		f.wantWrites("without")
		f.wantPublished(widgets, "False", "WaitingForAnnex", "certificates")
		f.bundle.change("CA")
		synctest.Wait()
		f.wantWrites("with", "create "+hostingName)
	})
}
