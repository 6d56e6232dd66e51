// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/etcdcluster"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// replaceData kills the member of an etcd, replaces its data, with none if from is empty, and
// starts it again. It returns a copy of the previous data.
func replaceData(t *testing.T, etcd *etcdcluster.Cluster, from string) (before string) {
	t.Helper()
	member := etcd.Members[0]
	member.Kill(t)
	before = filepath.Join(t.TempDir(), "before")
	expect.NoError(t, os.CopyFS(before, os.DirFS(member.Dir())))
	expect.NoError(t, os.RemoveAll(member.Dir()))
	if from != "" {
		expect.NoError(t, os.CopyFS(member.Dir(), os.DirFS(from)))
	}
	member.Start(t)
	return before
}

// copyData copies the data directory of a stopped etcd.
func copyData(t *testing.T, etcd *etcdcluster.Cluster) (dir string) {
	t.Helper()
	etcd.Members[0].Stop(t)
	dir = filepath.Join(t.TempDir(), "copy")
	expect.NoError(t, os.CopyFS(dir, os.DirFS(etcd.Members[0].Dir())))
	etcd.Members[0].Start(t)
	return dir
}

// expectUnavailable sends each kind of request to a Store whose etcd has other data. All must
// fail from the first one on.
func (r *resource) expectUnavailable(t *testing.T, existing string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), poll.Timeout)
	defer cancel()
	for range 5 {
		for what, request := range map[string]func() error{
			"a GET":    func() error { _, err := r.in("v1").Get(ctx, existing, metav1.GetOptions{}); return err },
			"a LIST":   func() error { _, err := r.in("v1").List(ctx, metav1.ListOptions{}); return err },
			"a create": func() error { return r.tryCreate(t, "refused") },
			"an update": func() error {
				_, err := r.patch(t, "v1", existing, `{"spec":{"changed":"yes"}}`)
				return err
			},
			"a delete": func() error { return r.in("v1").Delete(ctx, existing, metav1.DeleteOptions{}) },
		} {
			if err := request(); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "store ") {
				t.Errorf("%s: %v, want 503", what, err)
			}
		}
	}
}

func (a *annex) adopt(t *testing.T, name string) {
	t.Helper()
	store := a.waitForStore(t, name, metav1.ConditionFalse, "An etcd with other data")
	a.patchStore(t, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, hostingv1alpha1.AdoptClusterAnnotation, store.Status.ClusterID))
	a.waitForStore(t, name, metav1.ConditionTrue, "")
	expect.Eventually(t, a.Stores(), name, "the adoption is complete", func(store *hostingv1alpha1.Store) bool {
		_, adopts := store.Annotations[hostingv1alpha1.AdoptClusterAnnotation]
		return !adopts
	})
}

// TestStoreLosesItsData empties an etcd, which keeps its cluster ID, during an informer. Then
// the administrator adopts it.
func TestStoreLosesItsData(t *testing.T) {
	t.Parallel()
	a, etcd, r := startWithStore(t, "emptied")
	var last string
	for i := range 20 {
		last = r.create(t, "v1", fmt.Sprintf("w%02d", i), "spec: {}").GetResourceVersion()
	}
	informer := r.startInformer(t)
	before := a.waitForStore(t, "emptied", metav1.ConditionTrue, "").Status

	replaceData(t, etcd, "")
	etcd.WaitReady(t)
	r.expectUnavailable(t, "w00")
	a.waitForStore(t, "emptied", metav1.ConditionFalse, "DataReplaced")
	r.expectUnavailable(t, "w00")
	if known := len(informer.GetStore().ListKeys()); known != 20 {
		t.Errorf("the informer has %d objects, want all 20", known)
	}
	if found, err := etcd.Client(t).Get(t.Context(), "/annex/", clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil || found.Count != 0 {
		t.Errorf("annex wrote to it: %+v, %v", found, err)
	}

	a.adopt(t, "emptied")
	after := a.waitForStore(t, "emptied", metav1.ConditionTrue, "").Status
	if after.ClusterID != before.ClusterID || after.History.Epoch == before.History.Epoch {
		t.Errorf("the cluster %s and the epoch %s became %s and %s", before.ClusterID, before.History.Epoch, after.ClusterID, after.History.Epoch)
	}
	r.waitForCreate(t, "new")
	r.wantNames(t, "at the end", "new")
	if first, then := resourceVersion(t, last), resourceVersion(t, r.get(t, "v1", "new").GetResourceVersion()); then <= first {
		t.Errorf("resource versions changed from %d to %d", first, then)
	}
	events, err := r.in("v1").Watch(t.Context(), metav1.ListOptions{ResourceVersion: last})
	if err == nil {
		err = apierrors.FromObject(nextEvent(t, events).Object)
		events.Stop()
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("a watch from an old version: %v, want 410", err)
	}
	informer.waitForNames(t, "new")
}

// TestStoreIsRolledBack restarts an etcd with an earlier copy of its data.
func TestStoreIsRolledBack(t *testing.T) {
	t.Parallel()
	a, etcd, r := startWithStore(t, "earlier")
	r.create(t, "v1", "old", "spec: {}")
	earlier := copyData(t, etcd)
	r.waitForCreate(t, "new")
	var last string
	for i := range 5 { // more revisions than the copy has
		last = r.create(t, "v1", fmt.Sprintf("new%d", i), "spec: {}").GetResourceVersion()
	}
	expect.Eventually(t, a.Stores(), "earlier", "the status has the revision of the last write", func(store *hostingv1alpha1.Store) bool {
		known := store.Status.History
		return int(known.Revision) >= resourceVersion(t, last)
	})

	right := replaceData(t, etcd, earlier)
	etcd.WaitReady(t)
	r.expectUnavailable(t, "new")
	a.waitForStore(t, "earlier", metav1.ConditionFalse, "RolledBack")
	a = a.restart(t)
	r.annex = a
	r.waitForUnavailable(t, "refused", "earlier")
	a.waitForStore(t, "earlier", metav1.ConditionFalse, "RolledBack")

	replaceData(t, etcd, right)
	r.waitForCreate(t, "after")
	r.wantNames(t, "with its own data", "after", "new", "new0", "new1", "new2", "new3", "new4", "old")
}

// TestStoreIsReplacedByCopy restarts an etcd with an earlier copy that other clients wrote to,
// so that its revision is higher.
func TestStoreIsReplacedByCopy(t *testing.T) {
	t.Parallel()
	a, etcd, r := startWithStore(t, "copied")
	r.create(t, "v1", "old", "spec: {}")
	earlier := copyData(t, etcd)
	a = a.restart(t) // each process leaves a checkpoint
	r.annex = a
	r.waitForCreate(t, "new")

	replaceData(t, etcd, earlier)
	etcd.WaitReady(t)
	client := etcd.Client(t)
	for i := range 100 {
		etcdPut(t, client, "elsewhere", fmt.Sprint(i))
	}
	r.waitForUnavailable(t, "refused", "another history")
	r.expectUnavailable(t, "new")
	a.waitForStore(t, "copied", metav1.ConditionFalse, "Diverged")
}

// TestStoresOnTheDefaultEtcd creates Stores on the etcd of the Store default, which also has
// keys of another server.
func TestStoresOnTheDefaultEtcd(t *testing.T) {
	t.Parallel()
	own := etcdcluster.Start(t, etcdcluster.Config{Members: 1, Plain: true})
	endpoint := own.Endpoints()[0]
	a := startAnnex(t, "--etcd-servers="+endpoint)
	etcdPut(t, own.Client(t), "/registry/secrets/kube-system/token", "secret")
	for name, prefix := range map[string]string{"same": "/annex", "below": "/annex/secrets", "above": "/", "foreign": "/registry"} {
		t.Run(name, func(t *testing.T) {
			store := &hostingv1alpha1.Store{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: hostingv1alpha1.StoreSpec{Etcd: &hostingv1alpha1.EtcdStore{
					Endpoints: []string{strings.Replace(endpoint, "127.0.0.1", "localhost", 1)}, KeyPrefix: prefix,
				}},
			}
			made, err := a.Stores().Create(t.Context(), store, metav1.CreateOptions{})
			if apierrors.IsInvalid(err) {
				return
			}
			expect.NoError(t, err)
			reason := "InUse"
			if name == "above" || name == "foreign" {
				reason = "NotEmpty"
			}
			a.waitForStore(t, name, metav1.ConditionFalse, reason)
			id := a.waitForStore(t, hostingv1alpha1.DefaultStoreName, metav1.ConditionTrue, "").Status.ClusterID
			a.patchStore(t, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, hostingv1alpha1.AdoptClusterAnnotation, id))
			poll.Until(t, "the adoption is refused", func() string {
				return a.adoptionProblem(t, made, reason)
			})
		})
	}
	a.newNamespace(t)
	a.waitForStore(t, hostingv1alpha1.DefaultStoreName, metav1.ConditionTrue, "")
	a = a.restart(t, "--etcd-servers="+endpoint)
	a.newNamespace(t)
}

// adoptionProblem returns why a Store does not have the reason, and fails if it was adopted.
func (a *annex) adoptionProblem(t *testing.T, made *hostingv1alpha1.Store, reason string) string {
	t.Helper()
	store, err := a.Stores().Get(t.Context(), made.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return err.Error()
	case store.Annotations[hostingv1alpha1.AdoptClusterAnnotation] == "" || store.Status.ClusterID != "":
		t.Fatalf("it was adopted: %+v", store)
	}
	for _, condition := range store.Status.Conditions {
		if condition.Type == hostingv1alpha1.StoreReady && condition.Reason == reason {
			return ""
		}
	}
	return fmt.Sprintf("%+v", store.Status.Conditions)
}
