// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

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
