// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/etcdcluster"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

func TestStoreEndpointsOfAnotherCluster(t *testing.T) {
	t.Parallel()
	a, etcd, r := startWithStore(t, "pinned")
	r.create(t, "v1", "kept", "spec: {}")

	impostors := map[string]*etcdcluster.Cluster{
		"WrongCluster": etcdcluster.Start(t, etcdcluster.Config{Members: 1, Authority: etcd.Authority}),
		"DataReplaced": etcdcluster.Start(t, etcdcluster.Config{Members: 1, Authority: etcd.Authority, Twin: etcd}),
	}
	for reason, impostor := range impostors {
		back := etcd.Impersonate(impostor)
		r.waitForUnavailable(t, "refused", "pinned")
		a.waitForStore(t, "pinned", metav1.ConditionFalse, reason)
		a.get(t, r.path("v1")).Expect(t, http.StatusServiceUnavailable, "%s: a list from another cluster", reason)
		// After a restart only the status has the cluster ID.
		a = a.restart(t)
		r.annex = a
		r.waitForUnavailable(t, "refused", "pinned")
		found, err := impostor.Client(t).Get(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		expect.NoError(t, err)
		if found.Count != 0 {
			t.Errorf("%s: %d keys were written to another cluster", reason, found.Count)
		}
		back()
		r.waitForCreate(t, "after")
		r.wantNames(t, "after "+reason, "after", "kept")
	}
}

func TestStoreCertificateRotation(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	etcd := etcdcluster.Start(t, etcdcluster.Config{Members: 1})
	a.makeStore(t, "certified", etcd, time.Now().Add(-time.Minute))
	a.waitForStore(t, "certified", metav1.ConditionFalse, "expired")
	crd := newCRD(t, anySchema)
	a.createHostedResource(t, crd.Name, hostingv1alpha1.HostedResourceSpec{StoreName: "certified"})
	r := a.installCRD(t, crd)
	r.waitForUnavailable(t, "refused", "certified")

	replaceSecret := func(notAfter time.Time) {
		t.Helper()
		secrets := a.Kube.CoreV1().Secrets(hostingv1alpha1.NamespaceAnnexSystem)
		secret := expect.Get(t, secrets, "etcd-certified")
		secret.Data = etcd.Authority.SecretData(t, notAfter)
		expect.Update(t, secrets, secret)
	}
	replaceSecret(time.Now().Add(time.Hour))
	a.waitForStore(t, "certified", metav1.ConditionTrue, "")
	r.waitForCreate(t, "first")
	// An open watch survives a rotation.
	events := r.watch(t, "v1", metav1.ListOptions{ResourceVersion: r.get(t, "v1", "first").GetResourceVersion()})
	replaceSecret(time.Now().Add(2 * time.Hour))
	etcd.Members[0].Kill(t) // only a new connection shows a new certificate
	etcd.Members[0].Start(t)
	r.waitForCreate(t, "second")
	if event := nextEvent(t, events); !strings.Contains(describe(event), "second") {
		t.Errorf("event %s, want second", describe(event))
	}
}

func TestStoreOutOfSpace(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	etcd := etcdcluster.Start(t, etcdcluster.Config{QuotaBytes: 8 << 20})
	a.addStore(t, "small", etcd)
	a.patchStore(t, "small", `{"spec":{"etcd":{"defragmentation":"WhenFull"}}}`)
	r, other := a.installOn(t, "small"), a.installOn(t, "default")
	r.create(t, "v1", "first", "spec: {}")
	r.create(t, "v1", "second", "spec: {}")

	etcd.Fill(t, "/others")
	poll.UntilDone(t, "writes are refused", func() (bool, string) {
		err := r.tryCreate(t, "refused")
		if err == nil { // annex had made room
			expect.Succeeds(t, r.in("v1").Delete(t.Context(), "refused", metav1.DeleteOptions{}))
			etcd.Fill(t, "/others")
		}
		return err != nil && strings.Contains(err.Error(), "small") && apierrors.ReasonForError(err) == "StoreFull", fmt.Sprint(err)
	})
	a.waitForStore(t, "small", metav1.ConditionFalse, "NoSpace")
	r.wantNames(t, "in a full Store", "first", "second")
	expect.Succeeds(t, r.in("v1").Delete(t.Context(), "first", metav1.DeleteOptions{}), "delete from a full Store")
	expectOthersServed(t, a, r, other)

	// Other clients delete keys, and annex reclaims the space.
	_, err := etcd.Client(t).Delete(t.Context(), "/others", clientv3.WithPrefix())
	expect.NoError(t, err)
	r.waitForCreate(t, "after")
	a.waitForStore(t, "small", metav1.ConditionTrue, "")
	r.wantNames(t, "at the end", "after", "second")
}

func TestUnschedulableResources(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	a.addEtcd(t, "unlabelled")

	crd := newCRD(t, anySchema)
	a.createHostedResource(t, crd.Name, hostingv1alpha1.HostedResourceSpec{
		StoreSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "archive"}},
	})
	r := a.installCRD(t, crd)
	r.waitForUnavailable(t, "refused", r.name, "unlabelled")
	r.waitForEvent(t, "annex-scheduler", "FailedScheduling", "default", "unlabelled")
	// Readiness and deletion do not wait for a Store.
	unplaced := newCRD(t, anySchema)
	a.createHostedResource(t, unplaced.Name, hostingv1alpha1.HostedResourceSpec{
		StoreSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "none"}},
	})
	gone := a.installCRD(t, unplaced)
	expectOthersServed(t, a, r, a.installOn(t, "default"))
	gone.deleteCRD(t)
	gone.waitForCRDDeleted(t)

	a.patchStore(t, "unlabelled", `{"metadata":{"labels":{"tier":"archive"}}}`)
	r.waitForCreate(t, "first")
	if got := r.hosted(t).Spec.StoreName; got != "unlabelled" {
		t.Errorf("placed on %q", got)
	}
	r.waitForEvent(t, "annex-scheduler", "Scheduled", "unlabelled")
}

func TestResourceOnUnknownStore(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	crd := newCRD(t, anySchema)
	hosted := &hostingv1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: crd.Name}, Spec: hostingv1alpha1.HostedResourceSpec{StoreName: "nowhere"},
	}
	_, err := a.HostedResources().Create(t.Context(), hosted, metav1.CreateOptions{})
	if err != nil {
		expect.Error(t, err, "nowhere")
		return
	}
	r := a.installCRD(t, crd)
	r.waitForUnavailable(t, "refused", "nowhere")
	// The Store is created later.
	a.addEtcd(t, "nowhere")
	r.waitForCreate(t, "first")
}

// A frozen member neither responds nor refuses. No request may hang.
func TestFrozenStore(t *testing.T) {
	t.Parallel()
	a, etcd, r := startWithStore(t, "still")
	other := a.installOn(t, "default")
	r.create(t, "v1", "kept", "spec: {}")
	etcd.Members[0].Freeze(t)
	defer etcd.Members[0].Thaw(t)
	a.waitForStore(t, "still", metav1.ConditionFalse, "")
	r.waitForUnavailable(t, "refused", "still")
	ctx, cancel := context.WithTimeout(t.Context(), poll.Timeout)
	defer cancel()
	if _, err := r.in("v1").List(ctx, metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a list of a frozen Store: %v", err)
	}
	expectOthersServed(t, a, r, other)
	etcd.Members[0].Thaw(t)
	r.waitForCreate(t, "after")
}

// A CRD is deleted after its objects. While their Store is down the CRD waits, has
// conditions with the reason, and does not delay others.
func TestCRDDeletionWhileStoreIsDown(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	etcd := a.addEtcd(t, "fragile")
	var stuck []*resource
	for range 6 { // more than the workers
		r := a.installOn(t, "fragile")
		r.create(t, "v1", "there", "spec: {}")
		stuck = append(stuck, r)
	}
	other := a.installOn(t, "default")
	other.create(t, "v1", "there", "spec: {}")
	etcd.Members[0].Kill(t)
	a.waitForStore(t, "fragile", metav1.ConditionFalse, "")
	for _, r := range stuck {
		r.deleteCRD(t)
	}
	for _, r := range stuck {
		r.waitForCRDCondition(t, apiextensionsv1.Terminating, apiextensionsv1.ConditionTrue, "InstanceDeletionFailed", `store "fragile" is not available`)
		r.waitForCRDCondition(t, "StoreReady", apiextensionsv1.ConditionFalse, "StoreNotReady", `Store "fragile" is not ready`)
	}
	other.deleteCRD(t)
	other.waitForCRDDeleted(t)

	etcd.Members[0].Start(t)
	for _, r := range stuck {
		r.waitForCRDDeleted(t)
		r.waitForHostedResource(t, "has no CRD", isPending) // the test created it
		if left := r.keysOf(t, etcd.Client(t)); left > 0 {
			t.Errorf("%s left %d objects behind", r.name, left)
		}
	}
}

// waitForCRDCondition waits for a condition of the CRD.
func (r *resource) waitForCRDCondition(t *testing.T, kind apiextensionsv1.CustomResourceDefinitionConditionType, status apiextensionsv1.ConditionStatus, reason, words string) {
	t.Helper()
	expect.Eventually(t, r.annex.CRDs(), r.name, fmt.Sprintf("%s has %s=%s %s", r.name, kind, status, reason), func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		condition := apiextensionshelpers.FindCRDCondition(crd, kind)
		return condition != nil && condition.Status == status && condition.Reason == reason && strings.Contains(condition.Message, words)
	})
}
