// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	applyhosting "github.com/annex-dev/annex/pkg/generated/applyconfiguration/hosting/v1alpha1"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// newStore creates a Store of an unreachable etcd; nothing is placed on it.
func (a *annex) newStore(t *testing.T, name string) *hostingv1alpha1.Store {
	t.Helper()
	store := &hostingv1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       hostingv1alpha1.StoreSpec{Etcd: &hostingv1alpha1.EtcdStore{Endpoints: []string{"http://127.0.0.1:1"}}},
	}
	return expect.Create(t, a.Stores(), store)
}

func TestStoreClientset(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	stores := a.Stores()
	created := a.newStore(t, "clientset")
	if created.Spec.Etcd.KeyPrefix != "/annex" || created.Generation != 1 || created.UID == "" {
		t.Errorf("created %+v", created)
	}
	var updated *hostingv1alpha1.Store
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current, err := stores.Get(t.Context(), created.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		current.Spec.Unschedulable = true
		current.Status.Objects = 1000
		updated, err = stores.Update(t.Context(), current, metav1.UpdateOptions{})
		return err
	})
	expect.NoError(t, err)
	if !updated.Spec.Unschedulable || updated.Generation != 2 || updated.Status.Objects == 1000 {
		t.Errorf("updated %+v", updated)
	}
	var withStatus *hostingv1alpha1.Store
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current, err := stores.Get(t.Context(), created.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		current.Spec.Unschedulable = false
		current.Status.Version = "9.9.9"
		withStatus, err = stores.UpdateStatus(t.Context(), current, metav1.UpdateOptions{})
		return err
	})
	expect.NoError(t, err)
	if !withStatus.Spec.Unschedulable || withStatus.Generation != 2 || withStatus.Status.Version != "9.9.9" {
		t.Errorf("with another status: %+v", withStatus)
	}

	_, err = stores.Patch(t.Context(), created.Name, types.MergePatchType, []byte(`{"spec": {"etcd": null, "embedded": {}}}`), metav1.PatchOptions{})
	expect.Error(t, err, "spec: Forbidden: may not change between `embedded` and `etcd`")
	_, err = stores.Patch(t.Context(), created.Name, types.MergePatchType, []byte(`{"spec": {"etcd": {"endpoints": ["ftp://x"]}}}`), metav1.PatchOptions{})
	expect.Error(t, err, `spec.etcd.endpoints[0]`, `"ftp"`)
	// Strategic merge uses the keys of lists.
	_, err = stores.Patch(t.Context(), created.Name, types.StrategicMergePatchType, []byte(`{"metadata": {"labels": {"disk": "fast"}}}`), metav1.PatchOptions{})
	expect.Succeeds(t, err, "strategic merge patch")
	picked, err := stores.List(t.Context(), metav1.ListOptions{LabelSelector: "disk=fast"})
	if err != nil || len(picked.Items) != 1 || picked.Items[0].Name != created.Name {
		t.Errorf("list by label: %v, %v", picked, err)
	}
	expect.Delete(t, stores, created.Name)
	// It is deleted once annex knows that nothing is placed on it.
	expect.Gone(t, stores, created.Name)
}

func TestStoreApply(t *testing.T) {
	t.Parallel()
	stores := sharedAnnex(t).Hosting.HostingV1alpha1().Stores()
	store := applyhosting.Store("applied").WithSpec(applyhosting.StoreSpec().
		WithEtcd(applyhosting.EtcdStore().WithEndpoints("http://127.0.0.1:1")).
		WithTaints(applyhosting.Taint().WithKey("slow").WithEffect(hostingv1alpha1.TaintEffectNoSchedule)))
	if _, err := stores.Apply(t.Context(), store, metav1.ApplyOptions{FieldManager: "alice"}); err != nil {
		t.Fatal(err)
	}
	taint := applyhosting.Store("applied").WithSpec(applyhosting.StoreSpec().
		WithTaints(applyhosting.Taint().WithKey("remote").WithEffect(hostingv1alpha1.TaintEffectPreferNoSchedule)))
	both, err := stores.Apply(t.Context(), taint, metav1.ApplyOptions{FieldManager: "bob"})
	expect.NoError(t, err)
	if len(both.Spec.Taints) != 2 {
		t.Errorf("taints of two managers: %+v", both.Spec.Taints)
	}
	_, err = stores.Apply(t.Context(), applyhosting.Store("applied").WithSpec(applyhosting.StoreSpec().
		WithEtcd(applyhosting.EtcdStore().WithKeyPrefix("/other"))), metav1.ApplyOptions{FieldManager: "bob", Force: true})
	if !apierrors.IsInvalid(err) {
		t.Errorf("another key prefix: got %v, want Invalid", err)
	}
	_, err = stores.Apply(t.Context(), applyhosting.Store("applied").WithSpec(applyhosting.StoreSpec().
		WithEtcd(applyhosting.EtcdStore().WithEndpoints("http://127.0.0.1:2"))), metav1.ApplyOptions{FieldManager: "bob"})
	expect.Succeeds(t, err, "add an endpoint to a set of another manager")
	fine, err := applyhosting.ExtractStore(both, "bob")
	if err != nil || len(fine.Spec.Taints) != 1 || *fine.Spec.Taints[0].Key != "remote" {
		t.Errorf("extracted %+v, %v", fine, err)
	}
}

// Clients may use protobuf. Objects that are stored as JSON, as by an annex without protobuf of
// its own kinds, are read beside others, and are protobuf after the next write.
func TestHostingProtobuf(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	config := restclient.CopyConfig(a.AnnexConfig)
	config.AcceptContentTypes, config.ContentType = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	annexHosting, err := annexclient.NewForConfig(config)
	expect.NoError(t, err)
	hosted := annexHosting.HostingV1alpha1().HostedResources()
	const (
		name = "plans.protobuf.example.com"
		path = "/apis/hosting.annex.dev/v1alpha1/hostedresources"
		key  = "/annex/hosting.annex.dev/hostedresources/"
	)
	events, err := hosted.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	expect.NoError(t, err)
	defer events.Stop()
	_, err = a.etcd(t).Put(t.Context(), key+name, `{"kind":"HostedResource","apiVersion":"hosting.annex.dev/v1alpha1",
		"metadata":{"name":"`+name+`","uid":"u","creationTimestamp":"2026-01-02T03:04:05Z"},
		"spec":{"priority":7,"requests":{"objects":"100k"}},"status":{"objects":0}}`)
	expect.NoError(t, err)
	read, isHosted := nextEvent(t, events).Object.(*hostingv1alpha1.HostedResource)
	if !isHosted {
		t.Fatal("the watch did not receive a HostedResource")
	}
	requested := read.Spec.Requests[hostingv1alpha1.ResourceObjects]
	if requested.String() != "100k" || read.Spec.Priority != 7 || read.Spec.SchedulerName != hostingv1alpha1.DefaultSchedulerName {
		t.Errorf("the watch received %v", read)
	}
	other := expect.Create(t, hosted, &hostingv1alpha1.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: "others.protobuf.example.com"}})
	list, err := hosted.List(t.Context(), metav1.ListOptions{})
	has := func(name string) bool {
		return slices.ContainsFunc(list.Items, func(item hostingv1alpha1.HostedResource) bool { return item.Name == name })
	}
	if err != nil || !has(name) || !has(other.Name) {
		t.Errorf("listed %v, %v", list, err)
	}
	expect.Patch(t, hosted, name, `{"spec": {"priority": 8}}`)
	for _, name := range []string{name, other.Name} {
		if stored := etcdValue(t, a.etcd(t), key+name); !strings.HasPrefix(string(stored), "k8s\x00") {
			t.Errorf("etcd holds %q, want protobuf", stored)
		}
	}

	const metadata = ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	for _, accept := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf + metadata} {
		got := a.get(t, path, "Accept", accept)
		if got.Code != http.StatusOK || !strings.HasPrefix(string(got.Body), "k8s\x00") || !strings.Contains(string(got.Body), name) {
			t.Errorf("%s: %s", accept, got)
		}
	}
	if got := a.request(t, http.MethodPost, path, "k8s\x00junk", "Content-Type", runtime.ContentTypeProtobuf); got.Code != http.StatusBadRequest {
		t.Errorf("create with damaged protobuf: %s", got)
	}
	a.get(t, path+"/"+name, "Accept", "application/yaml").ExpectText(t, http.StatusOK, "priority: 8\n", "as YAML")
	for _, name := range []string{name, other.Name} {
		expect.Delete(t, hosted, name)
	}
}
