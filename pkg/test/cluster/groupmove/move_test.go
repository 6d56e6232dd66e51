// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package groupmove

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// TestMoveAndRollback moves a group into annex, back, and into annex again, while clients write and watch.
func TestMoveAndRollback(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharedAnnex, "moved.example.com")
	for i := range 50 {
		f.create("default", fmt.Sprintf("old-%d", i), nil)
	}
	owner := f.create("default", "owner", func(widget *unstructured.Unstructured) { widget.SetFinalizers([]string{"example.com/keep"}) })
	f.configMap(owner)
	victim := f.victim()
	_, err := mainCluster.EtcdKV().Compact(t.Context(), 2) // as after ten minutes of any cluster
	if !errors.Is(err, rpctypes.ErrCompacted) {
		expect.NoError(t, err)
	}
	load := f.startLoad()
	for again := range 2 {
		token := f.continueToken()
		f.mustMigrate(hostingv1alpha1.MigrationMove, nil)
		f.wantServed(hostingv1alpha1.PublishedBy("annex-system", "annex"))
		f.wantExpired(token)
		f.wantIdentity(owner)
		born := f.create("default", "born", nil)
		f.configMap(born)
		load.work()
		expect.Get(t, f.main.Kube.CoreV1().ConfigMaps("default"), f.nameOfOwned("owner"))
		if again == 1 {
			break
		}

		token = f.continueToken()
		load.exactFrom.Store(math.MaxInt64)
		f.mustMigrate(hostingv1alpha1.MigrationRollback, nil)
		f.wantServed("")
		f.wantExpired(token)
		f.wantIdentity(owner)
		live, err := f.widgets().Namespace("default").Get(t.Context(), "born", metav1.GetOptions{})
		expect.NoError(t, err)
		owned := expect.Get(t, f.main.Kube.CoreV1().ConfigMaps("default"), f.nameOfOwned("born"))
		if got := owned.OwnerReferences[0].UID; got != live.GetUID() {
			t.Errorf("the ConfigMap of an object that was created in annex has the owner %s, want %s", got, live.GetUID())
		}
		load.exactFrom.Store(load.floor())
		load.work()
		expect.Get(t, f.main.Kube.CoreV1().ConfigMaps("default"), f.nameOfOwned("owner"))
		after := expect.Get(t, f.main.Kube.CoreV1().ConfigMaps("default"), victim.Name)
		expect.Equal(t, victim.OwnerReferences, after.OwnerReferences, "owners of another tenant's object")
		load.deletes("born")
		expect.NoError(t, f.widgets().Namespace("default").Delete(t.Context(), "born", metav1.DeleteOptions{}))
		expect.Gone(t, f.main.Kube.CoreV1().ConfigMaps("default"), f.nameOfOwned("born"))
	}
	expect.Get(t, f.main.Kube.CoreV1().ConfigMaps("default"), f.nameOfOwned("owner"))
	load.finish(f)
}

// victim returns an object of one tenant, and lets another create a widget with the UID of its owner where annex once
// kept pairs of UIDs.
func (f *fixture) victim() *corev1.ConfigMap {
	f.Helper()
	configMaps := f.main.Kube.CoreV1().ConfigMaps("default")
	owner := expect.Create(f, configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "owner-"}})
	f.create("default", "attacker", func(widget *unstructured.Unstructured) {
		widget.SetAnnotations(map[string]string{"annex.dev/uid": string(owner.UID)})
	})
	return expect.Create(f, configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "victim-", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}},
	}})
}

// continueToken reads two pages of a list, and returns the token for the third.
func (f *fixture) continueToken() (token string) {
	f.Helper()
	for range 2 {
		page, err := f.widgets().List(f.Context(), metav1.ListOptions{Limit: 5, Continue: token})
		expect.NoError(f, err)
		token = page.GetContinue()
	}
	return token
}

// wantExpired fails unless a token of the other side gets 410, with one that continues the list as it is now.
func (f *fixture) wantExpired(token string) {
	f.Helper()
	_, err := f.widgets().List(f.Context(), metav1.ListOptions{Limit: 5, Continue: token})
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) || status.Status().Continue == "" {
		f.Fatalf("a token of the other side: %v, want 410 with a token", err)
	}
	page, err := f.widgets().List(f.Context(), metav1.ListOptions{Limit: 5, Continue: status.Status().Continue})
	expect.NoError(f, err)
	if len(page.Items) != 5 || page.GetContinue() == "" {
		f.Errorf("the rest of the list begins with %d objects, want 5 and more", len(page.Items))
	}
}

// wantIdentity fails unless an object is as it was created.
func (f *fixture) wantIdentity(before *unstructured.Unstructured) {
	f.Helper()
	after, err := f.widgets().Namespace(before.GetNamespace()).Get(f.Context(), before.GetName(), metav1.GetOptions{})
	expect.NoError(f, err)
	before = before.DeepCopy()
	forComparison(before)
	forComparison(after)
	expect.Equal(f, before.Object, after.Object, "identity of "+before.GetName())
}

// forComparison removes the resource version of an object, and the mark of a rollback that raised it.
func forComparison(object *unstructured.Unstructured) {
	object.SetResourceVersion("")
	maincluster.RemoveRaised(object)
}

// wantServed waits until the group is served by annex, or by the main cluster if it is empty, and discovered
// there in each version.
func (f *fixture) wantServed(by string) {
	f.Helper()
	poll.Until(f, fmt.Sprintf("the group is served by %q", by), func() string {
		current, err := f.main.APIServices.Get(f.Context(), "v1."+f.group, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if got := current.Labels[hostingv1alpha1.PublishedByLabel]; got != by {
			return fmt.Sprintf("it is served by %q", got)
		}
		return f.undiscovered(f.main, by != "")
	})
}

// undiscovered returns a version of the group that a client does not discover in annex, or in the main cluster, or
// an empty string.
func (f *fixture) undiscovered(client *clients.Clients, inAnnex bool) string {
	groups, resources, err := client.Kube.Discovery().ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return err.Error()
	}
	isThere := func(resource metav1.APIResource) bool {
		return !strings.Contains(resource.Name, "/") && slices.Contains(resource.Categories, hostingv1alpha1.ServedCategory) == inAnnex
	}
	for _, group := range groups {
		for _, version := range group.Versions {
			if group.Name == f.group && !slices.ContainsFunc(resources, func(list *metav1.APIResourceList) bool {
				return list.GroupVersion == version.GroupVersion && slices.ContainsFunc(list.APIResources, isThere)
			}) {
				return fmt.Sprintf("%s has no resources in discovery with annex's category %t", version.GroupVersion, inAnnex)
			}
		}
	}
	return ""
}

// TestFinalize deletes the main cluster's copy, objects with finalizers included, after which there is
// no way back for them.
func TestFinalize(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sharedAnnex, "finalized.example.com")
	for i := range 20 {
		f.create("default", fmt.Sprintf("w-%d", i), func(widget *unstructured.Unstructured) { widget.SetFinalizers([]string{"example.com/keep"}) })
	}
	f.mustMigrate(hostingv1alpha1.MigrationMove, nil)
	keys, err := mainCluster.EtcdKeys(t.Context(), "/registry/"+f.group+"/")
	expect.NoError(t, err)
	if len(keys) != 20 {
		t.Errorf("the main cluster keeps %d objects, want 20", len(keys))
	}
	f.mustMigrate(hostingv1alpha1.MigrationFinalize, func(m *hostingv1alpha1.Migration) { m.Spec.Confirmed = true })
	if keys, err = mainCluster.EtcdKeys(t.Context(), "/registry/"+f.group+"/"); err != nil || len(keys) > 0 {
		t.Errorf("the main cluster has %q after Finalize (%v)", keys, err)
	}
	list, err := f.widgets().List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	if len(list.Items) != 20 {
		t.Errorf("annex has %d objects, want 20", len(list.Items))
	}
	failed := f.migrate(hostingv1alpha1.MigrationFinalize, func(m *hostingv1alpha1.Migration) { m.Spec.Confirmed = true })
	expect.Contains(t, message(failed), "NoMainCopy")
	f.mustMigrate(hostingv1alpha1.MigrationRollback, nil)
	if _, err := f.widgets().Namespace("default").Get(t.Context(), "w-0", metav1.GetOptions{}); apierrors.IsNotFound(err) {
		t.Error("a rollback after Finalize loses objects")
	}
}
