// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/layer/compression"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// automanagedLabel is the label of HostedResources that annex creates.
const automanagedLabel = "annex.dev/automanaged"

// waitForHostedResource waits until the resource's HostedResource passes a check, and
// returns it.
func (r *resource) waitForHostedResource(t *testing.T, what string, check func(*hostingv1alpha1.HostedResource) bool) *hostingv1alpha1.HostedResource {
	t.Helper()
	return expect.Eventually(t, r.annex.HostedResources(), r.name, "hosted resource "+r.name+" "+what, check)
}

// stored counts the objects of the resource in etcd, and their bytes without compression
// and as stored.
func (r *resource) stored(t *testing.T) (objects, bytes, stored int64) {
	t.Helper()
	found, err := r.annex.etcd(t).Get(t.Context(), "/annex/"+r.group+"/widgets/", clientv3.WithPrefix())
	expect.NoError(t, err, "list %s in etcd", r.name)
	for _, kv := range found.Kvs {
		plain, _ := compression.PlainSize(kv.Value)
		bytes += plain
		stored += int64(len(kv.Value))
	}
	return found.Count, bytes, stored
}

// waitForExactUsage waits until the status equals the usage in etcd.
func (r *resource) waitForExactUsage(t *testing.T) *hostingv1alpha1.HostedResource {
	t.Helper()
	objects, bytes, stored := r.stored(t)
	return r.waitForHostedResource(t, fmt.Sprintf("has %d objects of %d bytes in %d", objects, bytes, stored), func(hosted *hostingv1alpha1.HostedResource) bool {
		return hosted.Status.Objects == objects && hosted.Status.Bytes == bytes && hosted.Status.StoredBytes == stored
	})
}

func (r *resource) waitForHostedResourceDeleted(t *testing.T) {
	t.Helper()
	expect.Gone(t, r.annex.HostedResources(), r.name)
}

func isHosted(hosted *hostingv1alpha1.HostedResource) bool {
	return hosted.Status.Phase == hostingv1alpha1.HostedResourceHosted &&
		meta.IsStatusConditionTrue(hosted.Status.Conditions, hostingv1alpha1.HostedResourceEstablished) &&
		meta.IsStatusConditionTrue(hosted.Status.Conditions, hostingv1alpha1.HostedResourceStoreReady) &&
		meta.IsStatusConditionTrue(hosted.Status.Conditions, hostingv1alpha1.HostedResourceReady)
}

func isPending(hosted *hostingv1alpha1.HostedResource) bool {
	return hosted.Status.Phase == hostingv1alpha1.HostedResourcePending &&
		meta.IsStatusConditionFalse(hosted.Status.Conditions, hostingv1alpha1.HostedResourceReady)
}

func TestHostedResourceOfEveryCRD(t *testing.T) {
	t.Parallel()
	widgets := sharedAnnex(t).installCRD(t, newCRD(t, anySchema))
	hosted := widgets.waitForHostedResource(t, "is hosted", isHosted)
	if hosted.Labels[automanagedLabel] != "true" || hosted.Spec.StoreName != "default" {
		t.Errorf("labels %v and store %q, want the label automanaged and the Store default", hosted.Labels, hosted.Spec.StoreName)
	}

	for i := range 5 {
		widgets.create(t, "v1", fmt.Sprintf("widget-%d", i), "spec: {size: 1}")
	}
	widgets.waitForExactUsage(t)
	widgets.mustPatch(t, "v1", "widget-0", `{"spec":{"text":"a longer text than there was"}}`)
	widgets.waitForExactUsage(t)
	widgets.delete(t, "widget-1")
	if got := widgets.waitForExactUsage(t).Status.Objects; got != 4 {
		t.Errorf("%d objects, want 4", got)
	}

	widgets.deleteCRD(t)
	widgets.waitForHostedResourceDeleted(t)
}

func TestHostedResourceInUseCannotBeDeleted(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	first := widgets.waitForHostedResource(t, "is hosted", isHosted)
	err := a.HostedResources().Delete(t.Context(), widgets.name, metav1.DeleteOptions{})
	if !apierrors.IsConflict(err) {
		t.Errorf("delete it: %v, want a conflict", err)
	}
	expect.Error(t, err, "delete the CustomResourceDefinition", widgets.name, "first")
	widgets.create(t, "v1", "widget", "spec: {}")

	// A new CRD of the same name gets a new HostedResource.
	widgets.deleteCRD(t)
	widgets.waitForHostedResourceDeleted(t)
	again := newCRD(t, anySchema)
	again.Name, again.Spec.Group = widgets.name, widgets.group
	widgets = a.installCRD(t, again)
	next := widgets.waitForHostedResource(t, "is there again", isHosted)
	if next.UID == first.UID || next.Status.DefinitionUID == first.Status.DefinitionUID {
		t.Errorf("a new CRD of that name has the HostedResource %s of the old CRD %s", next.UID, next.Status.DefinitionUID)
	}
	if got := widgets.list(t); len(got) > 0 {
		t.Errorf("objects of the old CRD: %v", got)
	}
}

func TestHostedResourceCreatedBeforeCRD(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	crd := newCRD(t, anySchema)
	mine := &hostingv1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: crd.Name},
		Spec:       hostingv1alpha1.HostedResourceSpec{Priority: 7},
	}
	mine = expect.Create(t, a.HostedResources(), mine)
	widgets := &resource{annex: a, name: crd.Name, group: crd.Spec.Group}
	widgets.waitForHostedResource(t, "is pending", isPending)

	widgets = a.installCRD(t, crd)
	adopted := widgets.waitForHostedResource(t, "is hosted", isHosted)
	if adopted.UID != mine.UID || adopted.Spec.Priority != 7 || adopted.Spec.StoreName != "default" || adopted.Labels[automanagedLabel] != "" {
		t.Errorf("adopted: %+v, want the same object with its priority, on the Store default, and without the label automanaged", adopted)
	}
	widgets.create(t, "v1", "widget", "spec: {}")
	widgets.waitForExactUsage(t)

	widgets.deleteCRD(t)
	kept := widgets.waitForHostedResource(t, "is pending and empty", func(hosted *hostingv1alpha1.HostedResource) bool {
		return isPending(hosted) && hosted.Status.Objects == 0 && hosted.Status.Bytes == 0
	})
	if kept.UID != mine.UID {
		t.Error("a user's HostedResource was deleted with its CRD")
	}
}

func TestHostedResourceOfConflictingCRD(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	crd := newCRD(t, anySchema)
	a.createCRD(t, crd)
	rival := crd.DeepCopy()
	rival.Name = "gadgets." + crd.Spec.Group
	rival.Spec.Names.Plural = "gadgets"
	rival.Spec.Names.ListKind = "GadgetList" // and the same kind
	expect.Create(t, a.CRDs(), rival)
	gadgets := &resource{annex: a, name: rival.Name, group: crd.Spec.Group}
	gadgets.waitForHostedResource(t, "has the reason KindConflict", func(hosted *hostingv1alpha1.HostedResource) bool {
		ready := meta.FindStatusCondition(hosted.Status.Conditions, hostingv1alpha1.HostedResourceReady)
		return isPending(hosted) && ready.Reason == "KindConflict" && ready.ObservedGeneration == hosted.Generation
	})
}

func TestHostedResourceOfTerminatingCRD(t *testing.T) {
	t.Parallel()
	widgets := sharedAnnex(t).installCRD(t, newCRD(t, anySchema))
	widgets.createWithFinalizer(t, "held")
	widgets.deleteCRD(t)
	widgets.waitForHostedResource(t, "is terminating", func(hosted *hostingv1alpha1.HostedResource) bool {
		return hosted.Status.Phase == hostingv1alpha1.HostedResourceTerminating && hosted.Status.Objects == 1
	})
	widgets.removeFinalizers(t, "held")
	widgets.waitForHostedResourceDeleted(t)
}

// Many writes cause few writes of the status, and the last one is exact.
func TestHostedResourceUnderLoad(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	widgets.waitForHostedResource(t, "is hosted", isHosted)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	statuses := a.etcd(t).Watch(ctx, "/annex/hosting.annex.dev/hostedresources/"+widgets.name)
	started := time.Now()
	const writers, each = 4, 100
	var writing sync.WaitGroup
	for writer := range writers {
		writing.Go(func() {
			for i := range each {
				object := widgets.object(t, "v1", fmt.Sprintf("widget-%d-%d", writer, i), "spec: {}")
				if _, err := widgets.in("v1").Create(ctx, object, metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writing.Wait()
	hosted := widgets.waitForExactUsage(t)
	most := int(time.Since(started)/time.Second) + 2
	if hosted.Status.Objects != writers*each {
		t.Errorf("%d objects, want %d", hosted.Status.Objects, writers*each)
	}
	writes := 0
	for response := range statuses {
		expect.NoError(t, response.Err())
		writes += len(response.Events)
		if last := response.Events[len(response.Events)-1]; fmt.Sprint(last.Kv.ModRevision) == hosted.ResourceVersion {
			break
		}
	}
	if writes > most {
		t.Errorf("the status was written %d times in %s, want at most %d", writes, time.Since(started), most)
	}
}

// waitForExactStoreUsage waits until the status of the Store default counts the objects in etcd.
func (a *annex) waitForExactStoreUsage(t *testing.T) *hostingv1alpha1.Store {
	t.Helper()
	annexEtcd := a.etcd(t)
	var store *hostingv1alpha1.Store
	poll.UntilDone(t, "the Store default counts the objects in etcd", func() (bool, string) {
		found, err := annexEtcd.Get(t.Context(), "/annex/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return false, err.Error()
		}
		notes, err := annexEtcd.Get(t.Context(), keys.Own("/annex"), clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return false, err.Error()
		}
		if store, err = a.Stores().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		objects := found.Count - notes.Count
		done := meta.IsStatusConditionTrue(store.Status.Conditions, hostingv1alpha1.StoreReady) && store.Status.Objects == objects
		return done, fmt.Sprintf("etcd holds %d objects, the status is %+v", objects, store.Status)
	})
	return store
}

func TestDefaultStoreStatus(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	store := a.waitForExactStoreUsage(t)
	status := store.Status
	if store.Spec.Embedded == nil {
		t.Errorf("spec %+v, want embedded", store.Spec)
	}
	if status.DatabaseSize == nil || status.SizeInUse == nil || status.Quota == nil ||
		status.SizeInUse.Value() <= 0 || status.DatabaseSize.Cmp(*status.SizeInUse) < 0 || status.Quota.Cmp(*status.DatabaseSize) <= 0 {
		t.Errorf("size %v, in use %v, quota %v: want size in use <= size < quota", status.DatabaseSize, status.SizeInUse, status.Quota)
	}
	if len(status.Members) != 1 || !status.Members[0].Leader || status.Version == "" {
		t.Errorf("members %+v of version %q, want one leader", status.Members, status.Version)
	}

	a.newNamespace(t)
	if after := a.waitForExactStoreUsage(t); after.Status.Objects <= status.Objects {
		t.Errorf("%d objects after one was created, %d before", after.Status.Objects, status.Objects)
	}

	// The status of this Store is stored in it. Writing it must not cause another write.
	quiet, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	for response := range a.etcd(t).Watch(quiet, "/annex/hosting.annex.dev/", clientv3.WithPrefix()) {
		for _, event := range response.Events {
			t.Errorf("%s was written without a reason: %s", event.Kv.Key, event.Kv.Value)
		}
	}
}

func TestUnreachableStore(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	other := &hostingv1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "no-answer-"},
		Spec:       hostingv1alpha1.StoreSpec{Etcd: &hostingv1alpha1.EtcdStore{Endpoints: []string{"http://127.0.0.1:1"}}},
	}
	other = expect.Create(t, a.Stores(), other)
	expect.Eventually(t, a.Stores(), other.Name, "the Store has the reason Unreachable", func(store *hostingv1alpha1.Store) bool {
		ready := meta.FindStatusCondition(store.Status.Conditions, hostingv1alpha1.StoreReady)
		return ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason == "Unreachable"
	})
	a.get(t, "/readyz").Expect(t, http.StatusOK, "annex is not ready")
}

// A restart does not write statuses that are correct.
func TestRestartKeepsStatus(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	widgets.create(t, "v1", "widget", "spec: {}")
	widgets.waitForHostedResource(t, "is hosted", isHosted)
	before := widgets.waitForExactUsage(t)
	a = a.restart(t)
	widgets.annex = a
	gadgets := a.installCRD(t, newCRD(t, anySchema))
	gadgets.waitForHostedResource(t, "is hosted after the restart", isHosted)
	a.waitForExactStoreUsage(t)
	// A late write before the restart changes the resource version, but not the status: the
	// transition times of its conditions show each change. The watch cache is another one.
	after := widgets.waitForExactUsage(t)
	after.Status.CachedBytes = before.Status.CachedBytes
	if diff := cmp.Diff(before.Status, after.Status); diff != "" {
		t.Errorf("the status was written again (-before +after):\n%s", diff)
	}
}
